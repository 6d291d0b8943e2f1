"""Single values: what a field may be, and how a wrong one is reported."""

import pytest

from definition_helpers import check, found, from_yaml, problems, tasks  # isort: skip

EVERYTHING = """
name: order-fulfilment
description: Charge, pack, ship.
input: {type: object, required: [orderId, lines]}
defaults:
  timeout: 30s
  retry: {maxAttempts: 4, initialInterval: 1s, backoffCoefficient: 2, maxInterval: 1m, jitter: full}
timeout: 1h
onFailure: failFast
tags: {team: shop}
tasks:
  validate: {type: activity, activity: orders.validate, input: {order: "${input}"}}
  charge:
    type: http
    description: Takes the money.
    needs: [validate]
    when: "${tasks.validate.output.total > 0.0}"
    request:
      method: POST
      url: "https://pay.example/charges/${input.orderId}"
      headers: {Authorization: "Bearer ${secrets.PAY}", X-Attempt: 1, X-None: null}
      query: {dry: false, lines: [1, "${input.l}"]}
      timeout: 10s
      body: {amount: "${tasks.validate.output.total}"}
      successCodes: [201, "400-404", "409"]
    retry: {maxAttempts: 6, retryable: [Http], nonRetryable: [HttpClientError]}
    deadline: PT1H
    compensate:
      type: http
      request: {method: DELETE, url: "https://pay.example/${tasks.charge.output.body.id}"}
  pause: {type: wait, needs: [charge], duration: 0s}
  later: {type: wait, needs: [pause], until: "${tasks.charge.output.body.at}", runWhen: noneFailed}
  pack:
    type: map
    needs: [charge]
    items: "${input.lines}"
    maxConcurrency: 20
    do:
      type: activity
      activity: orders.pack
      input: {l: "${item}", i: "${index}", k: "${secrets.K}"}
  fixed: {type: map, items: [1, "${input.x}"], do: {type: transform, output: "${item * 2}"}}
  sum: {type: transform, needs: [pack], output: "${size(tasks.pack.output)}", when: true}
  approve: {type: signal, needs: [pack], signal: approved, schema: {type: object}, timeout: 2d}
  ship: {type: workflow, needs: [approve], workflow: shipping, version: 3, input: [1]}
  tell:
    type: publish
    event: {type: shipped, source: shop, subject: "${input.orderId}", data: 1}
    to: x
  old: {type: durable, orchestration: legacy, version: 2, input: null, signals: [stop, go-on]}
  tidy:
    type: activity
    activity: orders.tidy
    heartbeatTimeout: 10s
    needs: [ship]
    runWhen: allDone
    continueOnError: true
output: "${ {'tracking': tasks.ship.output.tracking} }"
"""


def test_everything_that_a_definition_may_hold_is_accepted() -> None:
    assert problems(from_yaml(EVERYTHING)) == []


def test_tasks_may_be_a_list_with_ids() -> None:
    mapping = tasks("{a: {type: wait, duration: 1s}, b: {type: wait, duration: 2s, needs: [a]}}")
    listed = tasks(
        "[{id: a, type: wait, duration: 1s}, {id: b, type: wait, duration: 2s, needs: [a]}]"
    )
    assert check(listed) == check(mapping)


def test_faults_in_the_list_form_have_the_paths_of_the_list() -> None:
    raw = tasks(
        """
        - {id: a, type: wait, duration: 1s}
        - {id: a, type: wait, duration: oops}
        - {type: wait, duration: 1s, needs: [b]}
        - {id: 5, type: wait, duration: 1s}
        - {id: a/b, type: wait, duration: 1s}
        - nonsense
        """
    )
    assert found(raw) == {
        ("$.tasks[1].id", "DUPLICATE_TASK"),
        ("$.tasks[1].duration", "BAD_DURATION"),
        ("$.tasks[2].id", "MISSING_FIELD"),
        ("$.tasks[2].needs[0]", "UNKNOWN_NEED"),
        ("$.tasks[3].id", "WRONG_TYPE"),
        ("$.tasks[4].id", "BAD_TASK_ID"),
        ("$.tasks[5]", "WRONG_TYPE"),
    }


def test_unknown_fields_are_refused_with_the_nearest_known_name() -> None:
    raw = from_yaml(
        """
        name: w
        descripton: x
        defaults: {retyr: {}, retry: {maxAttempt: 3}}
        tasks:
          a: {type: activity, activity: orders.pack, tiemout: 5s}
          b: {type: http, request: {url: "http://x", mehtod: GET}}
          c: {type: map, items: [], do: {type: transform, output: 1, need: [a], needs: [a]}}
          d: {type: wait, duration: 1s, timeout: 1s}
          e: {type: publish, event: {type: x, subjct: y}}
        """
    )
    hints = {item.field: item.hint for item in problems(raw) if item.code == "UNKNOWN_FIELD"}
    assert hints == {
        "$.descripton": 'did you mean "description"?',
        "$.defaults.retyr": 'did you mean "retry"?',
        "$.defaults.retry.maxAttempt": 'did you mean "maxAttempts"?',
        "$.tasks.a.tiemout": 'did you mean "timeout"?',
        "$.tasks.b.request.mehtod": 'did you mean "method"?',
        "$.tasks.c.do.need": "the fields here are description, timeout, retry, type, output",
        "$.tasks.c.do.needs": "it belongs to the task around `do`",
        "$.tasks.d.timeout": "a wait has no attempts: it takes as long as it says",
        "$.tasks.e.event.subjct": 'did you mean "subject"?',
    }


@pytest.mark.parametrize(
    ("task", "path", "code"),
    [
        ("{activity: orders.pack}", ".type", "MISSING_FIELD"),
        ("{type: 5}", ".type", "UNKNOWN_TYPE"),
        ("{type: transfrom}", ".type", "UNKNOWN_TYPE"),
        ("{type: activity}", ".activity", "MISSING_FIELD"),
        ("{type: activity, activity: 5}", ".activity", "WRONG_TYPE"),
        ("{type: activity, activity: a b}", ".activity", "BAD_NAME"),
        ("{type: transform, output: 1, needs: b}", ".needs", "WRONG_TYPE"),
        ("{type: transform, output: 1, needs: [1]}", ".needs[0]", "WRONG_TYPE"),
        ("{type: transform, output: 1, continueOnError: 1}", ".continueOnError", "WRONG_TYPE"),
        ("{type: transform, output: 1, runWhen: always}", ".runWhen", "BAD_VALUE"),
        ("{type: transform, output: 1, when: 1}", ".when", "WRONG_TYPE"),
        ("{type: transform, output: 1, when: 'a ${true}'}", ".when", "BAD_EXPRESSION"),
        ("{type: transform, output: 1, when: 'true'}", ".when", "BAD_EXPRESSION"),
        ("{type: transform, output: 1, timeout: 30}", ".timeout", "WRONG_TYPE"),
        ("{type: transform, output: 1, timeout: soon}", ".timeout", "BAD_DURATION"),
        ("{type: transform, output: 1, timeout: 0s}", ".timeout", "BAD_DURATION"),
        ("{type: transform, output: 1, timeout: 2h}", ".timeout", "BAD_DURATION"),
        ("{type: transform, output: 1, retry: 3}", ".retry", "WRONG_TYPE"),
        (
            "{type: transform, output: 1, retry: {maxAttempts: 0}}",
            ".retry.maxAttempts",
            "BAD_VALUE",
        ),
        (
            "{type: transform, output: 1, retry: {maxAttempts: true}}",
            ".retry.maxAttempts",
            "WRONG_TYPE",
        ),
        (
            "{type: transform, output: 1, retry: {maxAttempts: 3.0}}",
            ".retry.maxAttempts",
            "WRONG_TYPE",
        ),
        (
            "{type: transform, output: 1, retry: {maxAttempts: '3'}}",
            ".retry.maxAttempts",
            "WRONG_TYPE",
        ),
        ("{type: transform, output: 1, retry: {jitter: some}}", ".retry.jitter", "BAD_VALUE"),
        (
            "{type: transform, output: 1, retry: {backoffCoefficient: 0.5}}",
            ".retry.backoffCoefficient",
            "BAD_VALUE",
        ),
        (
            "{type: transform, output: 1, retry: {backoffCoefficient: true}}",
            ".retry.backoffCoefficient",
            "WRONG_TYPE",
        ),
        (
            "{type: transform, output: 1, retry: {initialInterval: 2m, maxInterval: 1m}}",
            ".retry.maxInterval",
            "BAD_RETRY",
        ),
        ("{type: wait}", "", "BAD_WAIT"),
        ("{type: wait, duration: 1s, until: '2027-01-01T00:00:00Z'}", "", "BAD_WAIT"),
        ("{type: wait, duration: 4000d}", ".duration", "BAD_DURATION"),
        ("{type: wait, until: tomorrow}", ".until", "BAD_TIME"),
        ("{type: wait, until: 2027-01-01T08:30:00}", ".until", "BAD_TIME"),
        ("{type: http, request: {}}", ".request.url", "MISSING_FIELD"),
        ("{type: http, request: {url: 'ftp://x'}}", ".request.url", "BAD_URL"),
        ("{type: http, request: {url: 'file:///etc/passwd'}}", ".request.url", "BAD_URL"),
        ("{type: http, request: {url: 'x.example/y'}}", ".request.url", "BAD_URL"),
        ("{type: http, request: {url: 'http://x', method: get}}", ".request.method", "BAD_VALUE"),
        (
            "{type: http, request: {url: 'http://x', headers: {a b: c}}}",
            ".request.headers",
            "BAD_VALUE",
        ),
        (
            '{type: http, request: {url: "http://x", headers: {a: "b\\r\\nc"}}}',
            ".request.headers.a",
            "BAD_VALUE",
        ),
        (
            "{type: http, request: {url: 'http://x', headers: {a: [1]}}}",
            ".request.headers.a",
            "WRONG_TYPE",
        ),
        (
            "{type: http, request: {url: 'http://x', query: {a: {b: 1}}}}",
            ".request.query.a",
            "WRONG_TYPE",
        ),
        (
            "{type: http, request: {url: 'http://x', timeout: 1h30m}}",
            ".request.timeout",
            "BAD_DURATION",
        ),
        (
            "{type: http, request: {url: 'http://x', timeout: true}}",
            ".request.timeout",
            "WRONG_TYPE",
        ),
        (
            "{type: http, request: {url: 'http://x', successCodes: []}}",
            ".request.successCodes",
            "BAD_VALUE",
        ),
        ("{type: http, request: {url: 'https://'}}", ".request.url", "BAD_URL"),
        (
            "{type: http, request: {url: 'http://x', successCodes: [99]}}",
            ".request.successCodes[0]",
            "BAD_VALUE",
        ),
        (
            "{type: http, request: {url: 'http://x', successCodes: [true]}}",
            ".request.successCodes[0]",
            "BAD_VALUE",
        ),
        (
            "{type: http, request: {url: 'http://x', successCodes: ['300-200']}}",
            ".request.successCodes[0]",
            "BAD_VALUE",
        ),
        ("{type: map, items: 5, do: {type: transform, output: 1}}", ".items", "WRONG_TYPE"),
        ("{type: map, items: 'x', do: {type: transform, output: 1}}", ".items", "WRONG_TYPE"),
        (
            "{type: map, items: 'a${[]}', do: {type: transform, output: 1}}",
            ".items",
            "BAD_EXPRESSION",
        ),
        ("{type: map, items: []}", ".do", "MISSING_FIELD"),
        (
            "{type: map, items: [], maxConcurrency: 0, do: {type: transform, output: 1}}",
            ".maxConcurrency",
            "BAD_VALUE",
        ),
        *(
            (
                f"{{type: map, items: [], tolerateFailures: {value}, "
                "do: {type: transform, output: 1}}",
                ".tolerateFailures",
                code,
            )
            for value, code in (
                *(("-1", "BAD_TOLERANCE"), ("10001", "BAD_TOLERANCE"), ("1.5", "WRONG_TYPE")),
                *(("true", "WRONG_TYPE"), ("[1]", "WRONG_TYPE"), ("'10'", "BAD_TOLERANCE")),
                *(("'101%'", "BAD_TOLERANCE"), ("'100.1%'", "BAD_TOLERANCE")),
                *(("'-1%'", "BAD_TOLERANCE"), ("'5 %'", "BAD_TOLERANCE"), ("'%'", "BAD_TOLERANCE")),
                *(("'1.234%'", "BAD_TOLERANCE"), ("some", "BAD_TOLERANCE")),
            )
        ),
        ("{type: map, items: [], do: {type: map, items: []}}", ".do.type", "MAP_IN_MAP"),
        ("{type: map, items: [], do: {type: wait}}", ".do", "BAD_WAIT"),
        ("{type: map, items: [], do: {}}", ".do.type", "MISSING_FIELD"),
        (
            "{type: map, items: [], do: {type: activity, activity: nope}}",
            ".do.activity",
            "UNKNOWN_ACTIVITY",
        ),
        ("{type: signal, signal: 'a b'}", ".signal", "BAD_NAME"),
        ("{type: signal, signal: a, schema: {type: nonsense}}", ".schema.type", "BAD_SCHEMA"),
        ("{type: signal, signal: a, retry: {maxAttempts: 2}}", ".retry", "UNKNOWN_FIELD"),
        ("{type: workflow, workflow: A}", ".workflow", "BAD_NAME"),
        ("{type: workflow, workflow: a, version: 0}", ".version", "BAD_VALUE"),
        ("{type: publish, event: {}}", ".event.type", "MISSING_FIELD"),
        ("{type: durable, orchestration: ''}", ".orchestration", "BAD_NAME"),
        ("[1]", "", "WRONG_TYPE"),
        ("null", "", "WRONG_TYPE"),
    ],
)
def test_wrong_values_of_a_task(task: str, path: str, code: str) -> None:
    raw = tasks("{ok: {type: transform, output: 1}, b: {type: transform, output: 1}}")
    raw["tasks"]["a"] = from_yaml(task)
    assert found(raw) == {(f"$.tasks.a{path}", code)}


def test_a_name_says_what_is_allowed_and_an_activity_where_it_is_looked_for() -> None:
    """A pattern is for machines; a module that was written while the app runs is not known yet."""
    raw = tasks("{a: {type: activity, activity: zebra.ride}}")
    raw["name"] = "Bad_Name"
    hints = {item.field: item.hint for item in problems(raw)}
    assert hints["$.name"].startswith("lower-case letters")
    assert "activities/" in hints["$.tasks.a.activity"]
    assert "start it again" in hints["$.tasks.a.activity"]


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"name": "Order"}, "$.name", "BAD_NAME"),
        ({"name": "a" * 64}, "$.name", "BAD_NAME"),
        ({"name": "a\n"}, "$.name", "BAD_NAME"),
        ({"name": None}, "$.name", "WRONG_TYPE"),
        ({"tasks": {}}, "$.tasks", "NO_TASKS"),
        ({"tasks": []}, "$.tasks", "NO_TASKS"),
        ({"tasks": "x"}, "$.tasks", "WRONG_TYPE"),
        ({"tasks": None}, "$.tasks", "WRONG_TYPE"),
        ({"timeout": "0s"}, "$.timeout", "BAD_DURATION"),
        ({"timeout": "P1M"}, "$.timeout", "BAD_DURATION"),
        ({"onFailure": "failfast"}, "$.onFailure", "BAD_VALUE"),
        ({"tags": {"a": 1}}, "$.tags.a", "WRONG_TYPE"),
        ({"defaults": {"timeout": "2h"}}, "$.defaults.timeout", "BAD_DURATION"),
        (
            {"defaults": {"retry": {"initialInterval": "1m", "maxInterval": "1s"}}},
            "$.defaults.retry.maxInterval",
            "BAD_RETRY",
        ),
        ({"input": 5}, "$.input", "WRONG_TYPE"),
        ({"input": {"type": "objekt"}}, "$.input.type", "BAD_SCHEMA"),
        ({"input": {"pattern": "("}}, "$.input.pattern", "BAD_SCHEMA"),
        ({"input": {"$ref": "http://169.254.169.254/x"}}, "$.input['$ref']", "BAD_SCHEMA"),
        ({"input": {"$ref": "#/$defs/nope"}}, "$.input", "BAD_SCHEMA"),
        ({"input": {"$ref": "#"}}, "$.input", "BAD_SCHEMA"),
        (
            {"input": {"const": {"$ref": "file:///etc/passwd"}}},
            "$.input.const['$ref']",
            "BAD_SCHEMA",
        ),
        (
            {"input": {"$schema": "http://json-schema.org/draft-07/schema#"}},
            "$.input['$schema']",
            "BAD_SCHEMA",
        ),
    ],
)
def test_wrong_values_at_the_top(change: dict[str, object], path: str, code: str) -> None:
    raw = {**tasks("{a: {type: transform, output: 1}}"), **change}
    assert found(raw) == {(path, code)}


@pytest.mark.parametrize("raw", [None, True, 5, "name: w", [], ["tasks"]])
def test_a_definition_is_an_object(raw: object) -> None:
    assert found(raw) == {("$", "WRONG_TYPE")}


def test_an_empty_definition_lacks_what_it_must_have() -> None:
    assert found({}) == {("$.name", "MISSING_FIELD"), ("$.tasks", "MISSING_FIELD")}


def test_a_number_of_seconds_is_told_how_to_write_it() -> None:
    (problem,) = problems({**tasks("{a: {type: transform, output: 1}}"), "timeout": 30})
    assert '"30s"' in problem.hint


def test_a_schema_nested_to_the_limit_is_an_error_not_a_crash() -> None:
    schema: dict[str, object] = {}
    for _ in range(120):
        schema = {"not": schema}
    raw = {**tasks("{a: {type: transform, output: 1}}"), "input": schema}
    assert found(raw) <= {("$.input", "BAD_SCHEMA")}
