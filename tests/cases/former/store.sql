BEGIN TRANSACTION;
CREATE TABLE agents (
	cluster_id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	workers JSON, 
	seq BIGINT DEFAULT '0' NOT NULL, load JSON, 
	CONSTRAINT pk_agents PRIMARY KEY (cluster_id, name), 
	CONSTRAINT fk_agents_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "agents" VALUES('9b23396b7ee52439','vm-27774-9e76b388',1000005.0,NULL,0,NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE changes (
	id INTEGER NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	at DOUBLE NOT NULL, 
	who VARCHAR(100) NOT NULL, 
	what TEXT NOT NULL, 
	"before" JSON, 
	"after" JSON, 
	CONSTRAINT pk_changes PRIMARY KEY (id), 
	CONSTRAINT fk_changes_cluster_id_clusters FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "changes" VALUES(1,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','policy','"load_based"','"priority"');
INSERT INTO "changes" VALUES(2,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.categories',NULL,'true');
INSERT INTO "changes" VALUES(3,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.classes','{"default": 100}',NULL);
INSERT INTO "changes" VALUES(4,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.compat',NULL,'""');
INSERT INTO "changes" VALUES(5,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.consumables',NULL,'{}');
INSERT INTO "changes" VALUES(6,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.deadline_users',NULL,'[]');
INSERT INTO "changes" VALUES(7,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.default_class','"default"',NULL);
INSERT INTO "changes" VALUES(8,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.default_duration',NULL,0);
INSERT INTO "changes" VALUES(9,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.discipline',NULL,'"easy"');
INSERT INTO "changes" VALUES(10,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.duration_offset',NULL,0);
INSERT INTO "changes" VALUES(11,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.groups',NULL,'{}');
INSERT INTO "changes" VALUES(12,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.load_adjustment_decay_time',NULL,450);
INSERT INTO "changes" VALUES(13,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.load_adjustments',NULL,'{}');
INSERT INTO "changes" VALUES(14,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.load_formula',NULL,'""');
INSERT INTO "changes" VALUES(15,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.max_jobs_per_user',NULL,0);
INSERT INTO "changes" VALUES(16,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.max_reservation',NULL,0);
INSERT INTO "changes" VALUES(17,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.most_asked_priority',NULL,0);
INSERT INTO "changes" VALUES(18,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.parallel_environments',NULL,'{}');
INSERT INTO "changes" VALUES(19,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.queue_sort_method',NULL,'"load"');
INSERT INTO "changes" VALUES(20,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.queues',NULL,'{}');
INSERT INTO "changes" VALUES(21,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.quotas',NULL,'[]');
INSERT INTO "changes" VALUES(22,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.rebalance_minimum_duration',4,NULL);
INSERT INTO "changes" VALUES(23,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.rebalance_threshold',0,NULL);
INSERT INTO "changes" VALUES(24,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.requestors','[]',NULL);
INSERT INTO "changes" VALUES(25,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.reserve',NULL,'"asked"');
INSERT INTO "changes" VALUES(26,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.rounding','"exact"',NULL);
INSERT INTO "changes" VALUES(27,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.schedule_interval',NULL,15);
INSERT INTO "changes" VALUES(28,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.search',NULL,'"gaps"');
INSERT INTO "changes" VALUES(29,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.sets',NULL,'{"users": {}, "hosts": {}}');
INSERT INTO "changes" VALUES(30,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.slot_search',NULL,'"auto"');
INSERT INTO "changes" VALUES(31,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.slot_type',NULL,'"core"');
INSERT INTO "changes" VALUES(32,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.tickets',NULL,'{"share": 0.0, "functional": 0.0, "hierarchy": "OFS", "functional_weights": {"user": 0.25, "project": 0.25, "department": 0.25, "job": 0.25}, "functional_shares": {"users": {}, "projects": {}, "departments": {}}, "share_functional_shares": true, "max_functional_jobs": 200, "max_pending_tasks_per_job": 50, "override": {"users": {}, "projects": {}, "departments": {}, "jobs": {}}, "share_override_tickets": true, "share_tree": {}, "compensation_factor": 5.0, "halftime": 168.0, "usage_weights": {"core": 1.0}}');
INSERT INTO "changes" VALUES(33,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.unit','"worker"',NULL);
INSERT INTO "changes" VALUES(34,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.urgency',NULL,'{}');
INSERT INTO "changes" VALUES(35,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.utc_offset',NULL,0);
INSERT INTO "changes" VALUES(36,'1ed75b2bfc0dab30',1000000.0,'secret 6a887234a2d04a07','settings.weights',NULL,'{"priority": 1.0, "urgency": 0.1, "ticket": 0.01, "waiting_time": 0.0, "deadline": 3600000.0}');
CREATE TABLE clusters (
	id VARCHAR(64) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	document JSON NOT NULL, 
	levels VARCHAR(16) NOT NULL, 
	worker_type VARCHAR(100) NOT NULL, 
	revision INTEGER NOT NULL, 
	clock BIGINT NOT NULL, 
	policy VARCHAR(100) NOT NULL, 
	settings JSON NOT NULL, 
	memory JSON NOT NULL, 
	created_at DOUBLE NOT NULL, limits JSON DEFAULT '{}' NOT NULL, draining_at DOUBLE, drained_at DOUBLE, epoch BIGINT DEFAULT '1' NOT NULL, moves BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_clusters PRIMARY KEY (id), 
	CONSTRAINT uq_clusters_name UNIQUE (name)
);
INSERT INTO "clusters" VALUES('9b23396b7ee52439','oak','{"graph": {"nodes": {"c0": {"metadata": {"type": "cluster", "name": "c0"}}, "n0": {"metadata": {"type": "node", "name": "n0"}}, "n0c0": {"metadata": {"type": "core", "name": "core0"}}, "n0c1": {"metadata": {"type": "core", "name": "core1"}}, "n1": {"metadata": {"type": "node", "name": "n1"}}, "n1c0": {"metadata": {"type": "core", "name": "core0"}}, "n1c1": {"metadata": {"type": "core", "name": "core1"}}}, "edges": [{"source": "c0", "target": "n0", "relation": "contains"}, {"source": "n0", "target": "n0c0", "relation": "contains"}, {"source": "n0", "target": "n0c1", "relation": "contains"}, {"source": "c0", "target": "n1", "relation": "contains"}, {"source": "n1", "target": "n1c0", "relation": "contains"}, {"source": "n1", "target": "n1c1", "relation": "contains"}]}}','any','node',1,5,'load_based','{"classes": {"default": 100}, "default_class": "default", "requestors": [], "rounding": "exact", "unit": "worker", "rebalance_threshold": 0, "rebalance_minimum_duration": 4}','{}',1000000.0,'{"max_requestors": -1, "max_jobs_per_requestor": -1, "max_waiting_tasks": -1, "throttle": -1, "max_retries": 0, "quarantine_after": 0, "quarantine_minutes": 15, "task_minutes": 0, "allowance_seconds": 15}',NULL,NULL,3,0);
INSERT INTO "clusters" VALUES('1ed75b2bfc0dab30','elm','{"graph": {"nodes": {"c0": {"metadata": {"type": "cluster", "name": "c0"}}, "n0": {"metadata": {"type": "node", "name": "n0"}}, "n0c0": {"metadata": {"type": "core", "name": "core0"}}, "n0c1": {"metadata": {"type": "core", "name": "core1"}}}, "edges": [{"source": "c0", "target": "n0", "relation": "contains"}, {"source": "n0", "target": "n0c0", "relation": "contains"}, {"source": "n0", "target": "n0c1", "relation": "contains"}]}}','any','node',1,1,'priority','{"discipline": "easy", "max_reservation": 0, "reserve": "asked", "compat": "", "search": "gaps", "schedule_interval": 15.0, "default_duration": 0.0, "duration_offset": 0.0, "slot_search": "auto", "categories": true, "slot_type": "core", "max_jobs_per_user": 0, "parallel_environments": {}, "consumables": {}, "weights": {"priority": 1.0, "urgency": 0.1, "ticket": 0.01, "waiting_time": 0.0, "deadline": 3600000.0}, "urgency": {}, "most_asked_priority": 0.0, "deadline_users": [], "tickets": {"share": 0.0, "functional": 0.0, "hierarchy": "OFS", "functional_weights": {"user": 0.25, "project": 0.25, "department": 0.25, "job": 0.25}, "functional_shares": {"users": {}, "projects": {}, "departments": {}}, "share_functional_shares": true, "max_functional_jobs": 200, "max_pending_tasks_per_job": 50, "override": {"users": {}, "projects": {}, "departments": {}, "jobs": {}}, "share_override_tickets": true, "share_tree": {}, "compensation_factor": 5.0, "halftime": 168.0, "usage_weights": {"core": 1.0}}, "queues": {}, "queue_sort_method": "load", "load_formula": "", "load_adjustments": {}, "load_adjustment_decay_time": 450.0, "utc_offset": 0.0, "quotas": [], "sets": {"users": {}, "hosts": {}}, "groups": {}}','{}',1000000.0,'{"max_requestors": -1, "max_jobs_per_requestor": -1, "max_waiting_tasks": -1, "throttle": -1, "max_retries": 0, "quarantine_after": 0, "quarantine_minutes": 15, "task_minutes": 0, "allowance_seconds": 15, "max_reservations_per_requestor": 10, "reservation_days": 0}',NULL,NULL,1,0);
CREATE TABLE "credentials" (
	id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	requestors JSON, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	name VARCHAR(100), changes INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_credentials PRIMARY KEY (id), 
	CONSTRAINT uq_credentials_hash UNIQUE (hash)
);
INSERT INTO "credentials" VALUES('c0710ff871594024','token','c5f4ab07b1a3180a0f72bc294000a5d79eb0d168e162c45fef7bc8b994535465',NULL,1000000.0,NULL,NULL,NULL,0);
INSERT INTO "credentials" VALUES('95b90b9f5c67dc9a','secret','a34296611d78f5baf5a21bee33d0402e2052cd62d9e5b5d0be1d6a95760ac393',NULL,1000000.0,NULL,NULL,NULL,0);
INSERT INTO "credentials" VALUES('ebe5adeff27009e1','token','d0db020cd75db0e74a3137235411c02abcd1402ae958fcbebab1e0756ee2a690',NULL,1000000.0,NULL,NULL,NULL,0);
INSERT INTO "credentials" VALUES('6a887234a2d04a07','secret','39302ff21377e7b5f5beebb792b60ca9959603dc51947fcb5b63d64e392e0372',NULL,1000000.0,NULL,NULL,NULL,0);
INSERT INTO "credentials" VALUES('009bc1934cd6111a','token','6f7a936141b61c690f4301346c54e96f399fbd643a449b8111c256cc75eebabb','["ann"]',1000006.0,NULL,NULL,NULL,0);
CREATE TABLE durations (
	id INTEGER NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	task TEXT NOT NULL, 
	mean DOUBLE NOT NULL, 
	runs INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_durations PRIMARY KEY (id), 
	CONSTRAINT uq_durations_job_task UNIQUE (job, task)
);
INSERT INTO "durations" VALUES(1,'483e5628ee6b690f7b264f6933b841e38fb139c6809058399ae090a33c5259b7','task-0',0.0,1,1000002.0);
CREATE TABLE events (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DOUBLE NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	facts JSON NOT NULL
);
INSERT INTO "events" VALUES(1,1000000.0,'9b23396b7ee52439','cluster','{"cluster": "oak", "state": "registered"}');
INSERT INTO "events" VALUES(2,1000000.0,'1ed75b2bfc0dab30','cluster','{"cluster": "elm", "state": "registered"}');
INSERT INTO "events" VALUES(3,1000001.0,'9b23396b7ee52439','job','{"job": "18ea6576824eb1ac9b08a530", "state": "WAITING", "cluster": "oak"}');
INSERT INTO "events" VALUES(4,1000002.0,'9b23396b7ee52439','task','{"job": "18ea6576824eb1ac9b08a530", "task": "18ea6576824eb1ac9b08a530-0", "state": "ASSIGNED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(5,1000002.0,'9b23396b7ee52439','task','{"job": "18ea6576824eb1ac9b08a530", "task": "18ea6576824eb1ac9b08a530-0", "state": "ACCEPTED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(6,1000002.0,'9b23396b7ee52439','task','{"job": "18ea6576824eb1ac9b08a530", "task": "18ea6576824eb1ac9b08a530-0", "state": "RUNNING", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(7,1000002.0,'9b23396b7ee52439','job','{"job": "18ea6576824eb1ac9b08a530", "state": "RUNNING", "cluster": "oak"}');
INSERT INTO "events" VALUES(8,1000002.0,'9b23396b7ee52439','task','{"job": "18ea6576824eb1ac9b08a530", "task": "18ea6576824eb1ac9b08a530-0", "state": "COMPLETED", "attempt": 1, "exit_code": 0, "cluster": "oak"}');
INSERT INTO "events" VALUES(9,1000002.0,'9b23396b7ee52439','job','{"job": "18ea6576824eb1ac9b08a530", "state": "COMPLETED", "cluster": "oak"}');
INSERT INTO "events" VALUES(10,1000003.0,'9b23396b7ee52439','job','{"job": "18ea6576921eb3243d7accd2", "state": "WAITING", "cluster": "oak"}');
INSERT INTO "events" VALUES(11,1000004.0,'9b23396b7ee52439','job','{"job": "18ea657693ab72f71e7293d8", "state": "WAITING", "cluster": "oak"}');
INSERT INTO "events" VALUES(12,1000005.0,'9b23396b7ee52439','task','{"job": "18ea6576921eb3243d7accd2", "task": "18ea6576921eb3243d7accd2-0", "state": "ASSIGNED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(13,1000005.0,'9b23396b7ee52439','task','{"job": "18ea657693ab72f71e7293d8", "task": "18ea657693ab72f71e7293d8-0", "state": "ASSIGNED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(14,1000005.0,'9b23396b7ee52439','task','{"job": "18ea6576921eb3243d7accd2", "task": "18ea6576921eb3243d7accd2-0", "state": "ACCEPTED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(15,1000005.0,'9b23396b7ee52439','task','{"job": "18ea657693ab72f71e7293d8", "task": "18ea657693ab72f71e7293d8-0", "state": "ACCEPTED", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(16,1000005.0,'9b23396b7ee52439','task','{"job": "18ea6576921eb3243d7accd2", "task": "18ea6576921eb3243d7accd2-0", "state": "RUNNING", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(17,1000005.0,'9b23396b7ee52439','job','{"job": "18ea6576921eb3243d7accd2", "state": "RUNNING", "cluster": "oak"}');
INSERT INTO "events" VALUES(18,1000005.0,'9b23396b7ee52439','task','{"job": "18ea657693ab72f71e7293d8", "task": "18ea657693ab72f71e7293d8-0", "state": "RUNNING", "attempt": 1, "cluster": "oak"}');
INSERT INTO "events" VALUES(19,1000005.0,'9b23396b7ee52439','job','{"job": "18ea657693ab72f71e7293d8", "state": "RUNNING", "cluster": "oak"}');
INSERT INTO "events" VALUES(20,1000006.0,'9b23396b7ee52439','job','{"job": "18ea65769d2a57d7a70f90ec", "state": "WAITING", "cluster": "oak"}');
INSERT INTO "events" VALUES(21,1000006.0,'9b23396b7ee52439','token','{"id": "009bc1934cd6111a", "state": "minted"}');
CREATE TABLE grants (
	credential_id VARCHAR(64) NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_grants PRIMARY KEY (credential_id, cluster_id), 
	CONSTRAINT fk_grants_credential_id FOREIGN KEY(credential_id) REFERENCES credentials (id) ON DELETE CASCADE, 
	CONSTRAINT fk_grants_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "grants" VALUES('c0710ff871594024','9b23396b7ee52439');
INSERT INTO "grants" VALUES('95b90b9f5c67dc9a','9b23396b7ee52439');
INSERT INTO "grants" VALUES('ebe5adeff27009e1','1ed75b2bfc0dab30');
INSERT INTO "grants" VALUES('6a887234a2d04a07','1ed75b2bfc0dab30');
INSERT INTO "grants" VALUES('009bc1934cd6111a','9b23396b7ee52439');
CREATE TABLE jobs (
	id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	requestor TEXT NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	cluster VARCHAR(100) NOT NULL, 
	jobspec JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	priority INTEGER NOT NULL, 
	nodes INTEGER NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	canceled_at DOUBLE, 
	ended_at DOUBLE, 
	accepted_clock BIGINT, 
	ended_clock BIGINT, 
	decision JSON NOT NULL, 
	wait JSON, 
	idempotency VARCHAR(64), 
	request_digest VARCHAR(64), basis TEXT DEFAULT '' NOT NULL, tag TEXT DEFAULT '' NOT NULL, suspended_at DOUBLE, stamp BIGINT DEFAULT '0' NOT NULL, awaits JSON, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT uq_jobs_idempotency UNIQUE (idempotency)
);
INSERT INTO "jobs" VALUES('18ea6576824eb1ac9b08a530','job','anonymous','9b23396b7ee52439','oak','{"version": 1, "resources": [{"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["true"], "slot": "it", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0}}}','COMPLETED',0,1,1000001.0,NULL,1000002.0,2,3,'{"candidates": [{"cluster": "elm", "fits": 2, "fits_exact": true, "totals": {"nodes": 1, "cores": 1, "gpus": 0, "memory": 0}}, {"cluster": "oak", "fits": 4, "fits_exact": true, "totals": {"nodes": 1, "cores": 1, "gpus": 0, "memory": 0}}], "refusals": [], "warnings": [], "selection": {"cluster": "oak", "selector": "constraint", "steps": [{"priority": 1, "step": "filter", "argument": "nodes_free > 0", "survivors": ["elm", "oak"], "values": {}, "dropped": {}, "note": ""}, {"priority": 1, "step": "sort_ascending", "argument": "cost_per_node_hour", "survivors": ["oak", "elm"], "values": {"elm": 4, "oak": 1.5}, "dropped": {}, "note": ""}, {"priority": 1, "step": "select", "argument": "first", "survivors": ["oak"], "values": {}, "dropped": {}, "note": "first of 2"}], "reason": "priority 1: first of 2", "warnings": [], "values": {"elm": {}, "oak": {}}, "ranks": {"oak": 1, "elm": 2}, "drops": {}}, "seed": "18ea6576824eb1ac9b08a530", "again": {"selector": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}, {"sort_ascending": "cost_per_node_hour"}, {"select": "first"}]}]}}, "ledger": {"policy": "[\"constraint\", {\"priorities\": [{\"priority\": 1, \"steps\": [{\"filter\": \"nodes_free > 0\"}, {\"sort_ascending\": \"cost_per_node_hour\"}, {\"select\": \"first\"}]}]}]", "states": "{\"elm\": {\"queue.waiting_tasks\": 0, \"queue.running_tasks\": 0, \"nodes_free\": 1, \"cost_per_node_hour\": 4, \"state.age\": 1.0}, \"oak\": {\"queue.waiting_tasks\": 0, \"queue.running_tasks\": 0, \"nodes_free\": 2, \"cost_per_node_hour\": 1.5, \"state.age\": 1.0}}", "graphs": "{\"elm\": \"1ed75b2bfc0dab30/1\", \"oak\": \"9b23396b7ee52439/1\"}", "digests": {"policy": "d4dbb9260c800f9114806175b91b0c13bd63bc1d86af17b00c159c13a8e42c4d", "states": "8cfae7abf525e90a84ec12e4100de024b3c62a959d22fed12c617819cad9849b", "graphs": "d79783d3139ca926241b5cb7ae2fa39f39ba2f16b4ba2838d5ae80e55be5b161"}}}',NULL,NULL,NULL,'','',NULL,2,NULL);
INSERT INTO "jobs" VALUES('18ea6576921eb3243d7accd2','job','anonymous','9b23396b7ee52439','oak','{"version": 1, "resources": [{"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["true"], "slot": "it", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0}}}','RUNNING',0,1,1000003.0,NULL,NULL,4,NULL,'{"candidates": [{"cluster": "oak", "fits": 4, "fits_exact": true, "totals": {"nodes": 1, "cores": 1, "gpus": 0, "memory": 0}}], "refusals": [], "warnings": [], "selection": {"cluster": "oak", "selector": "random", "steps": [{"priority": 0, "step": "select", "argument": "random", "survivors": ["oak"], "values": {}, "dropped": {}, "note": "random of 1"}], "reason": "random of 1", "warnings": [], "values": {"oak": {}}, "ranks": {}, "drops": {}}, "seed": "18ea6576921eb3243d7accd2", "again": {"selector": "random", "options": {}}, "ledger": {"policy": "[\"random\", {}]", "states": "{\"oak\": {\"queue.waiting_tasks\": 0, \"queue.running_tasks\": 0, \"nodes_free\": 2, \"cost_per_node_hour\": 1.5, \"state.age\": 3.0}}", "graphs": "{\"oak\": \"9b23396b7ee52439/1\"}", "digests": {"policy": "7440a417cc54462eed10844e0d70b52b5c66d9bf2d5f8bd2ca54c7f3d1e609ba", "states": "d8568296f5ee9b52e0e7a66b278f96252b10e4b71c46927e9986c4c7a03994c9", "graphs": "d892c19fdf2f02af8306200f549db276097c64428324da7c0eee0ddc8ec1caf7"}}}',NULL,NULL,NULL,'','',NULL,3,NULL);
INSERT INTO "jobs" VALUES('18ea657693ab72f71e7293d8','job','anonymous','9b23396b7ee52439','oak','{"version": 1, "resources": [{"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["echo", "again"], "slot": "it", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0}}}','RUNNING',0,1,1000004.0,NULL,NULL,5,NULL,'{"candidates": [{"cluster": "oak", "fits": 4, "fits_exact": true, "totals": {"nodes": 1, "cores": 1, "gpus": 0, "memory": 0}}], "refusals": [], "warnings": [], "selection": {"cluster": "oak", "selector": "random", "steps": [{"priority": 0, "step": "select", "argument": "random", "survivors": ["oak"], "values": {}, "dropped": {}, "note": "random of 1"}], "reason": "random of 1", "warnings": [], "values": {"oak": {}}, "ranks": {}, "drops": {}}, "seed": "18ea657693ab72f71e7293d8", "again": {"selector": "random", "options": {}}, "ledger": {"policy": "[\"random\", {}]", "states": "{\"oak\": {\"queue.waiting_tasks\": 0, \"queue.running_tasks\": 0, \"nodes_free\": 2, \"cost_per_node_hour\": 1.5, \"state.age\": 3.0}}", "graphs": "{\"oak\": \"9b23396b7ee52439/1\"}", "digests": {"policy": "7440a417cc54462eed10844e0d70b52b5c66d9bf2d5f8bd2ca54c7f3d1e609ba", "states": "d8568296f5ee9b52e0e7a66b278f96252b10e4b71c46927e9986c4c7a03994c9", "graphs": "d892c19fdf2f02af8306200f549db276097c64428324da7c0eee0ddc8ec1caf7"}}}',NULL,NULL,NULL,'','',NULL,3,NULL);
INSERT INTO "jobs" VALUES('18ea65769d2a57d7a70f90ec','job','anonymous','9b23396b7ee52439','oak','{"version": 1, "resources": [{"type": "node", "count": 2, "with": [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}]}], "tasks": [{"command": ["echo", "later"], "slot": "it", "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0}}}','WAITING',0,2,1000006.0,NULL,NULL,NULL,NULL,'{"candidates": [{"cluster": "oak", "fits": 2, "fits_exact": true, "totals": {"nodes": 2, "cores": 2, "gpus": 0, "memory": 0}}], "refusals": [], "warnings": [], "selection": {"cluster": "oak", "selector": "random", "steps": [{"priority": 0, "step": "select", "argument": "random", "survivors": ["oak"], "values": {}, "dropped": {}, "note": "random of 1"}], "reason": "random of 1", "warnings": [], "values": {"oak": {}}, "ranks": {}, "drops": {}}, "seed": "18ea65769d2a57d7a70f90ec", "again": {"selector": "random", "options": {}}, "ledger": {"policy": "[\"random\", {}]", "states": "{\"oak\": {\"queue.waiting_tasks\": 0, \"queue.running_tasks\": 0, \"nodes_free\": 2, \"cost_per_node_hour\": 1.5, \"state.age\": 3.0}}", "graphs": "{\"oak\": \"9b23396b7ee52439/1\"}", "digests": {"policy": "7440a417cc54462eed10844e0d70b52b5c66d9bf2d5f8bd2ca54c7f3d1e609ba", "states": "d8568296f5ee9b52e0e7a66b278f96252b10e4b71c46927e9986c4c7a03994c9", "graphs": "d892c19fdf2f02af8306200f549db276097c64428324da7c0eee0ddc8ec1caf7"}}}',NULL,NULL,NULL,'','',NULL,3,NULL);
CREATE TABLE record_uses (
	job VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_record_uses PRIMARY KEY (job, digest), 
	CONSTRAINT fk_record_uses_job FOREIGN KEY(job) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE records (
	digest VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_records PRIMARY KEY (digest)
);
CREATE TABLE reservations (
	id VARCHAR(64) NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	requestor TEXT NOT NULL, 
	requestors JSON, 
	name TEXT DEFAULT '' NOT NULL, 
	start DOUBLE NOT NULL, 
	"end" DOUBLE NOT NULL, 
	placement JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_reservations PRIMARY KEY (id), 
	CONSTRAINT fk_reservations_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
CREATE TABLE states (
	cluster_id VARCHAR(64) NOT NULL, 
	"values" JSON NOT NULL, 
	reported_at DOUBLE NOT NULL, 
	reported_clock BIGINT NOT NULL, 
	CONSTRAINT pk_states PRIMARY KEY (cluster_id), 
	CONSTRAINT fk_states_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "states" VALUES('9b23396b7ee52439','{"nodes_free": 2, "cost_per_node_hour": 1.5}',1000000.0,1);
INSERT INTO "states" VALUES('1ed75b2bfc0dab30','{"nodes_free": 1, "cost_per_node_hour": 4}',1000000.0,1);
CREATE TABLE subsystems (
	cluster_id VARCHAR(64) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	document JSON NOT NULL, 
	CONSTRAINT pk_subsystems PRIMARY KEY (cluster_id, name), 
	CONSTRAINT fk_subsystems_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
CREATE TABLE summaries (
	cluster_id VARCHAR(64) NOT NULL, 
	revision INTEGER NOT NULL, 
	layout INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_summaries PRIMARY KEY (cluster_id), 
	CONSTRAINT fk_summaries_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "summaries" VALUES('9b23396b7ee52439',1,1,X'7801AB56CACECC4B2956B252888E564ACE2F4A55D25130D451500252D1B1200C2294F2F253D025A20D74148C6221D2C939A5C525A945685AA381E68054004D502ACEAC4A055952AD04536B05B6066CA39582095009D80E2B05A35A10BB343729B5089B06982AA02298DEDA5A0068E135F3');
INSERT INTO "summaries" VALUES('1ed75b2bfc0dab30',1,1,X'78016D8DBD0E80200C845FA5B99941197995C645ED60544C401709EF6EC1B01887FEA4FDEE2E615DFC1CE18819D31104867A43D0C143A9D2E08FF9FBE0CE901DDEF7B45DF194F091B2FAF44AA803E2724B094968ACAB3135D19155A466E83597FDDA47097F824629D4B4393F67B535EC');
CREATE TABLE symbols (
	id INTEGER NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	CONSTRAINT pk_symbols PRIMARY KEY (id), 
	CONSTRAINT fk_symbols_job FOREIGN KEY(job) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE tags (
	id INTEGER NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	requestor TEXT NOT NULL, 
	basis TEXT NOT NULL, 
	tag TEXT NOT NULL, 
	CONSTRAINT pk_tags PRIMARY KEY (id), 
	CONSTRAINT fk_tags_cluster_id_clusters FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
CREATE TABLE tasks (
	id VARCHAR(64) NOT NULL, 
	job VARCHAR(64) NOT NULL, 
	cluster_id VARCHAR(64) NOT NULL, 
	"index" INTEGER NOT NULL, 
	gang INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	retries_left INTEGER NOT NULL, 
	placement JSON NOT NULL, 
	slots INTEGER NOT NULL, 
	agent TEXT NOT NULL, 
	exit_code INTEGER, 
	output TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	assigned_at DOUBLE, 
	started_at DOUBLE, 
	ended_at DOUBLE, expected DOUBLE DEFAULT '0' NOT NULL, hold VARCHAR(16) DEFAULT '' NOT NULL, suspended_at DOUBLE, paused DOUBLE DEFAULT '0' NOT NULL, stamp BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_tasks PRIMARY KEY (id), 
	CONSTRAINT fk_tasks_job FOREIGN KEY(job) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "tasks" VALUES('18ea6576824eb1ac9b08a530-0','18ea6576824eb1ac9b08a530','9b23396b7ee52439',0,0,'task-0','COMPLETED',1,0,'{"n0": {"core": 1}}',1,'vm-27774-9e76b388',0,'hello
','',1000002.0,1000002.0,1000002.0,0.0,'',NULL,0.0,2);
INSERT INTO "tasks" VALUES('18ea6576921eb3243d7accd2-0','18ea6576921eb3243d7accd2','9b23396b7ee52439',0,0,'task-0','RUNNING',1,0,'{"n0": {"core": 1}}',1,'vm-27774-9e76b388',NULL,'','',1000005.0,1000005.0,NULL,0.0,'',NULL,0.0,3);
INSERT INTO "tasks" VALUES('18ea657693ab72f71e7293d8-0','18ea657693ab72f71e7293d8','9b23396b7ee52439',0,0,'task-0','RUNNING',1,0,'{"n1": {"core": 1}}',1,'vm-27774-9e76b388',NULL,'','',1000005.0,1000005.0,NULL,0.0,'',NULL,0.0,3);
INSERT INTO "tasks" VALUES('18ea65769d2a57d7a70f90ec-0','18ea65769d2a57d7a70f90ec','9b23396b7ee52439',0,0,'task-0','WAITING',0,0,'{}',1,'',NULL,'','',NULL,NULL,NULL,0.0,'',NULL,0.0,0);
CREATE TABLE workers (
	cluster_id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	since DOUBLE NOT NULL, failures INTEGER DEFAULT '0' NOT NULL, stamp BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (cluster_id, name), 
	CONSTRAINT fk_workers_cluster_id FOREIGN KEY(cluster_id) REFERENCES clusters (id) ON DELETE CASCADE
);
INSERT INTO "workers" VALUES('9b23396b7ee52439','n0','READY',1000001.0,0,1);
INSERT INTO "workers" VALUES('9b23396b7ee52439','n1','READY',1000001.0,0,1);
INSERT INTO "workers" VALUES('1ed75b2bfc0dab30','n0','NEW',1000000.0,0,0);
CREATE INDEX ix_jobs_live ON jobs (cluster_id, state, accepted_clock, nodes);
CREATE INDEX ix_jobs_ended ON jobs (cluster_id, ended_clock, accepted_clock, nodes);
CREATE INDEX ix_tasks_cluster_id_state ON tasks (cluster_id, state);
CREATE INDEX ix_changes_cluster_id ON changes (cluster_id);
CREATE INDEX ix_durations_at ON durations (at);
CREATE INDEX ix_tags_cluster_id ON tags (cluster_id);
CREATE INDEX ix_tags_requestor_basis ON tags (requestor, basis);
CREATE INDEX ix_tasks_queue ON tasks (job, state, expected, "index");
CREATE INDEX ix_grants_cluster_id ON grants (cluster_id);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);
CREATE INDEX ix_reservations_cluster_id ON reservations (cluster_id);
CREATE INDEX ix_symbols_job ON symbols (job);
CREATE INDEX ix_symbols_name ON symbols (name);
CREATE INDEX ix_jobs_stamp ON jobs (cluster_id, stamp);
CREATE INDEX ix_workers_stamp ON workers (cluster_id, stamp);
CREATE INDEX ix_tasks_stamp ON tasks (cluster_id, stamp) WHERE stamp > 0;
CREATE INDEX ix_record_uses_digest ON record_uses (digest);
CREATE INDEX ix_workers_there ON workers (cluster_id) WHERE state NOT IN ('NEW', 'LOST');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',21);
COMMIT;
