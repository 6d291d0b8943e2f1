"""The tables of `durable.db`.

| table | holds |
|---|---|
| `instances` | one row per instance: its present execution, status, who works on it (a lease) |
| `history` | the events of the present execution, one per row |
| `inbox` | events that the execution has not heard; `held`: nobody waits for it yet |
| `activities` | calls of activities that have not finished; a lease while one runs |
| `timers` | when which timer of which execution fires |

Times are epoch ms. `execution` tells one run of an id from the next (continue-as-new, started
anew): results of an earlier one find nobody.
"""

from __future__ import annotations

from typing import Final

LAYOUT: Final = 1  # PRAGMA user_version

TABLES: Final = """
CREATE TABLE instances (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    execution TEXT NOT NULL,
    status TEXT NOT NULL,
    suspended INTEGER NOT NULL DEFAULT 0,
    payload TEXT,
    output TEXT,
    custom_status TEXT,
    parent TEXT,
    parent_execution TEXT,
    parent_task INTEGER,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    wake INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    lease_until INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX due_instances ON instances (updated) WHERE wake = 1;
CREATE INDEX children ON instances (parent) WHERE parent IS NOT NULL;
CREATE TABLE history (
    instance TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (instance, seq)
) WITHOUT ROWID;
CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    instance TEXT NOT NULL,
    kind INTEGER NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    event TEXT NOT NULL
);
CREATE INDEX inboxes ON inbox (instance, seq);
CREATE TABLE activities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    instance TEXT NOT NULL,
    execution TEXT NOT NULL,
    task INTEGER NOT NULL,
    name TEXT NOT NULL,
    payload TEXT,
    owner TEXT,
    lease_until INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX due_activities ON activities (lease_until);
CREATE INDEX activities_of ON activities (instance);
CREATE TABLE timers (
    instance TEXT NOT NULL,
    execution TEXT NOT NULL,
    task INTEGER NOT NULL,
    fire_at INTEGER NOT NULL,
    PRIMARY KEY (instance, execution, task)
) WITHOUT ROWID;
CREATE INDEX due_timers ON timers (fire_at);
"""
