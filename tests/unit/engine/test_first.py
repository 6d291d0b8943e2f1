from tests.support.world import FakeActivities, World

async def test_chain(tmp_path):
    acts = FakeActivities(double=lambda c: c.input["n"] * 2, add=lambda c: sum(c.input))
    w = await World(tmp_path, acts).open()
    await w.publish({"name": "calc", "tasks": {
        "a": {"type": "activity", "activity": "double", "input": {"n": "${input.n}"}},
        "b": {"type": "activity", "activity": "double", "needs": ["a"], "input": {"n": "${tasks.a.output}"}},
        "m": {"type": "map", "needs": ["b"], "items": "${[1,2,3]}", "maxConcurrency": 2, "do": {"type": "transform", "output": "${item * 10}"}},
        "w": {"type": "wait", "needs": ["m"], "duration": "5m"},
        "c": {"type": "activity", "activity": "add", "needs": ["w"], "input": "${tasks.m.output}"},
    }, "output": "${tasks.c.output}"})
    s = await w.start("calc", {"n": 3})
    await w.run_until_quiet()
    v = await w.view(s.id)
    print(v, await w.statuses(s.id))
    assert v.output == 60
    await w.verified(s.id)
    await w.close()
