BEGIN TRANSACTION;
CREATE TABLE agent (id TEXT NOT NULL, starts INTEGER NOT NULL);
INSERT INTO "agent" VALUES('vm-27774-9e76b388',1);
CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL);
INSERT INTO "outbox" VALUES(1,'{"task": "18ea6576921eb3243d7accd2-0", "attempt": 1, "event": "ended", "result": "exited", "exit_code": 0, "output": "all done\n", "detail": ""}');
CREATE TABLE runs (task TEXT, attempt INTEGER, starting INTEGER NOT NULL, offer TEXT NOT NULL,
                                 PRIMARY KEY (task, attempt));
INSERT INTO "runs" VALUES('18ea657693ab72f71e7293d8-0',1,1,'{"id": "18ea657693ab72f71e7293d8-0", "attempt": 1, "job": "18ea657693ab72f71e7293d8", "name": "task-0", "command": ["echo", "again"], "cwd": "", "environment": {}, "duration": 0.0, "processes": 1, "placement": {"n1": {"core": 1}}}');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',1);
COMMIT;
