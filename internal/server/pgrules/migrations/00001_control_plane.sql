-- +goose Up

-- +goose StatementBegin
-- Returns whether a text is a JSON object. A cast of invalid JSON would fail with an error that does not name the constraint.
CREATE FUNCTION rate_limit_is_object(value text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN json_typeof(value::json) = 'object';
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Returns whether a text is a subject: a JSON object of one or more strings, with an API key only as its hash.
CREATE FUNCTION rate_limit_is_subject(value text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN (SELECT coalesce(bool_and(json_typeof(e.value) = 'string' AND
            (e.key NOT IN ('api_key', 'descriptor.api_key') OR e.value #>> '{}' ~ '^sha256:[A-Za-z0-9_-]{22}$')), false)
        FROM json_each(value::json) e);
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Returns whether a text is a network, such as 10.0.0.0/8 or 2001:db8::/32.
CREATE FUNCTION rate_limit_is_network(value text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN value::cidr IS NOT NULL;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
-- +goose StatementEnd

-- The current state: one row. Every change locks it until the end of its transaction, so that changes are committed in the order of
-- their seq, and a reader that has read up to a seq misses no change before it.
CREATE TABLE rate_limit_state (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    format     integer NOT NULL DEFAULT 1 CHECK (format > 0), -- format of documents, subjects and limits in these tables
    version    bigint  NOT NULL DEFAULT 0 CHECK (version >= 0), -- version of the rules
    seq        bigint  NOT NULL DEFAULT 0 CHECK (seq >= 0), -- number of the last change of any kind
    purged     bigint  NOT NULL DEFAULT 0 CHECK (purged >= 0), -- removed rows up to this seq were deleted
    mode       text    NOT NULL DEFAULT 'enforce' CHECK (mode IN ('enforce', 'shadow', 'off')),
    changed_by xid8 -- the transaction that made the version
);
INSERT INTO rate_limit_state DEFAULT VALUES;

-- One row for each statement that changed something. If a node does not find the mark of the seq that it has read here, the
-- database has a different history, as after a restore.
CREATE TABLE rate_limit_changes (
    seq        bigint      PRIMARY KEY,
    mark       uuid        NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The constraints reject rows that nodes could not use, as far as a constraint can: one invalid row makes every node reject all rules.
CREATE TABLE rate_limit_rules (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_uuid      uuid        NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    name           text        NOT NULL UNIQUE,
    scope          text        NOT NULL CHECK (scope IN ('global', 'tenant', 'endpoint')),
    tenant_id      text        CHECK (tenant_id <> ''), -- NULL: all tenants; likewise for the next columns
    http_method    text        CHECK (http_method <> ''),
    path_pattern   text        CHECK (path_pattern <> ''),
    tier           text        CHECK (tier <> ''),
    algorithm      text        CHECK (algorithm IN ('token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_log',
                                   'sliding_window_counter', 'sliding_window_log')),
    max_requests   bigint      CHECK (max_requests BETWEEN 1 AND 1000000000),
    window_seconds double precision CHECK (window_seconds BETWEEN 0.001 AND 31622400
                                   AND abs(window_seconds * 1000 - round(window_seconds * 1000)) < 0.01), -- whole milliseconds
    burst_capacity bigint      CHECK (burst_capacity BETWEEN 0 AND 1000000000),
    priority       integer     NOT NULL DEFAULT 0 CHECK (priority >= 0),
    enabled        boolean     NOT NULL DEFAULT true,
    document       text, -- NULL: the rule is defined by the columns only
    owner          text        NOT NULL DEFAULT '', -- the tenant that may change it; '' for operators
    seq            bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT rate_limit_rules_name_valid CHECK (name ~ '^[A-Za-z0-9_.:/-]{1,128}$'
        AND name !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'), -- since rules are also found by rule_uuid
    CONSTRAINT rate_limit_rules_document_is_object CHECK (rate_limit_is_object(document)),
    CONSTRAINT rate_limit_rules_document_has_name
        CHECK (NOT rate_limit_is_object(document) OR coalesce(document::json ->> 'id', '') = name),
    CONSTRAINT rate_limit_rules_document_or_columns
        CHECK (document IS NOT NULL OR max_requests IS NOT NULL AND window_seconds IS NOT NULL),
    CONSTRAINT rate_limit_rules_burst_of_token_bucket
        CHECK (document IS NOT NULL OR coalesce(burst_capacity, 0) <= 0 OR coalesce(algorithm, 'token_bucket') = 'token_bucket'),
    CONSTRAINT rate_limit_rules_rate_countable CHECK (document IS NOT NULL OR CASE
        WHEN coalesce(window_seconds NOT BETWEEN 0.001 AND 31622400 OR max_requests < 1, true) THEN true -- rejected by other constraints
        WHEN algorithm IN ('sliding_log', 'sliding_window_log') THEN max_requests <= 10000
        WHEN coalesce(algorithm, 'token_bucket') IN ('token_bucket', 'leaky_bucket') THEN max_requests <= window_seconds * 1000000000
            AND coalesce(burst_capacity, 0) * window_seconds <= max_requests * 316224000.0 -- the bucket refills within 3660 days
        ELSE true END)
);
CREATE INDEX ON rate_limit_rules (seq);
CREATE INDEX ON rate_limit_rules (owner);
CREATE INDEX ON rate_limit_rules (tenant_id);

CREATE TABLE rate_limit_exemptions (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_id       bigint      REFERENCES rate_limit_rules (id), -- NULL: from all rules
    subject_type  text        NOT NULL CHECK (subject_type IN ('api_key', 'user', 'ip_cidr', 'service_account')),
    subject_value text        NOT NULL CHECK (length(subject_value) BETWEEN 1 AND 1024),
    reason        text        NOT NULL DEFAULT '' CHECK (length(reason) <= 1000),
    expires_at    timestamptz CONSTRAINT rate_limit_exemptions_expires_after_creation CHECK (expires_at > created_at),
    created_by    text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    removed_at    timestamptz,
    seq           bigint      NOT NULL DEFAULT 0,
    CONSTRAINT rate_limit_exemptions_api_key_hashed
        CHECK (subject_type <> 'api_key' OR subject_value ~ '^sha256:[A-Za-z0-9_-]{22}$'),
    CONSTRAINT rate_limit_exemptions_network_valid CHECK (subject_type <> 'ip_cidr' OR rate_limit_is_network(subject_value)),
    UNIQUE NULLS NOT DISTINCT (rule_id, subject_type, subject_value)
);
CREATE INDEX ON rate_limit_exemptions (seq);

CREATE TABLE rate_limit_overrides (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_id      bigint      NOT NULL REFERENCES rate_limit_rules (id),
    limit_name   text        NOT NULL DEFAULT '' CHECK (length(limit_name) <= 128),
    subject      text        NOT NULL CHECK (length(subject) <= 4096), -- {"tenant":"acme","user":"ann"}, names sorted
    limit_text   text        NOT NULL CHECK (length(limit_text) BETWEEN 1 AND 1024), -- as in rules: 5000/minute burst 500, or 100000
    reason       text        NOT NULL DEFAULT '' CHECK (length(reason) <= 1000),
    expires_at   timestamptz CONSTRAINT rate_limit_overrides_expires_after_creation CHECK (expires_at > created_at),
    created_by   text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    removed_at   timestamptz,
    seq          bigint      NOT NULL DEFAULT 0,
    CONSTRAINT rate_limit_overrides_subject_valid CHECK (rate_limit_is_subject(subject)),
    UNIQUE (rule_id, subject, limit_name)
);
CREATE INDEX ON rate_limit_overrides (seq);
CREATE INDEX rate_limit_overrides_tenant_idx ON rate_limit_overrides ((subject::json ->> 'tenant'));

-- Versions of the rules, and the rules that each version has changed: the row of a rule, or NULL if it is no longer in force.
CREATE TABLE rate_limit_versions (
    version    bigint      PRIMARY KEY CHECK (version > 0),
    mode       text        NOT NULL CHECK (mode IN ('enforce', 'shadow', 'off')),
    actor      text        NOT NULL,
    comment    text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE rate_limit_rule_versions (
    version bigint NOT NULL REFERENCES rate_limit_versions (version),
    rule_id bigint NOT NULL REFERENCES rate_limit_rules (id),
    rule    jsonb,
    PRIMARY KEY (rule_id, version)
);
CREATE INDEX ON rate_limit_rule_versions (version);

CREATE TABLE rate_limit_rule_audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rule_id    bigint, -- NULL if it concerns all rules or none
    object     text        NOT NULL CHECK (object IN ('rule', 'override', 'exemption', 'mode', 'token', 'counter')),
    action     text        NOT NULL CHECK (action IN ('insert', 'update', 'delete', 'enable', 'disable')),
    old_row    jsonb,
    new_row    jsonb,
    version    bigint, -- version of the rules, if the change made one
    tenant     text        NOT NULL DEFAULT '',
    actor      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON rate_limit_rule_audit (rule_id, id);
CREATE INDEX ON rate_limit_rule_audit (tenant, id);

-- The recent changes of tenants' editors, as a leaky bucket: each change moves drained_at forward by its share of a day, to at most
-- one day from now.
CREATE TABLE rate_limit_tenant_changes (
    tenant     text        PRIMARY KEY CHECK (tenant <> ''),
    drained_at timestamptz NOT NULL
);

CREATE TABLE rate_limit_tokens (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'),
    sum        bytea       NOT NULL UNIQUE CHECK (length(sum) = 32), -- SHA-256 of the token; the token itself is not stored
    role       text        NOT NULL CHECK (role IN ('self', 'viewer', 'editor', 'admin')),
    tenant     text        NOT NULL DEFAULT '',
    subject    text        NOT NULL DEFAULT '' -- the subject whose usage a token with the role self shows
        CONSTRAINT rate_limit_tokens_subject_of_self CHECK (subject = ''
            OR role = 'self' AND length(subject) <= 1024 AND subject ~ '^(user=.|api_key=sha256:[A-Za-z0-9_-]{22}$)'),
    created_by text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz CONSTRAINT rate_limit_tokens_expires_after_creation CHECK (expires_at > created_at),
    revoked_at timestamptz
);

-- The state that each node runs, as reported by the node.
CREATE TABLE rate_limit_nodes (
    node       text        PRIMARY KEY,
    version    bigint      NOT NULL,
    seq        bigint      NOT NULL,
    problem    text        NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT now()
);

-- Usage for billing. Many nodes add to a row, each unit at most once.
CREATE TABLE usage_daily (
    id         bigint NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
    day        date   NOT NULL, -- UTC
    rule       text   NOT NULL CHECK (rule <> ''),
    subject    text   NOT NULL CHECK (subject <> ''), -- the hash that identifies counters
    attributes text   CHECK (rate_limit_is_object(attributes)), -- attributes of the subject, as in overrides; NULL if unknown
    units      bigint NOT NULL DEFAULT 0,
    denied    bigint NOT NULL DEFAULT 0 CHECK (denied >= 0),
    PRIMARY KEY (day, rule, subject)
);
CREATE INDEX ON usage_daily (attributes, day);

-- +goose StatementBegin
-- Returns the author of a change: headgate.actor if the program has set it, otherwise the session user.
CREATE FUNCTION rate_limit_actor() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT coalesce(nullif(current_setting('headgate.actor', true), ''), 'sql:' || session_user) $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Runs before each statement that changes something: takes the next seq, which the rows of the statement get.
CREATE FUNCTION rate_limit_begin() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    next bigint;
BEGIN
    IF current_setting('headgate.purge', true) = 'on' THEN
        RETURN NULL;
    END IF;
    UPDATE rate_limit_state SET seq = seq + 1 RETURNING seq INTO next;
    INSERT INTO rate_limit_changes (seq) VALUES (next);
    PERFORM set_config('headgate.seq', next::text, true);
    PERFORM pg_notify('headgate', '');
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Returns the version that this transaction makes. The first call makes it: higher than all versions that nodes have reported, even if
-- the database was restored to an earlier state.
CREATE FUNCTION rate_limit_next_version() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    UPDATE rate_limit_state s
    SET version = greatest(s.version, (SELECT max(n.version) FROM rate_limit_nodes n)) + 1, changed_by = pg_current_xact_id()
    WHERE s.changed_by IS DISTINCT FROM pg_current_xact_id()
    RETURNING s.version INTO made;
    IF found THEN
        INSERT INTO rate_limit_versions (version, mode, actor, comment)
        SELECT made, s.mode, rate_limit_actor(), coalesce(current_setting('headgate.comment', true), '')
        FROM rate_limit_state s;
    ELSE
        SELECT s.version INTO made FROM rate_limit_state s;
    END IF;
    RETURN made;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION rate_limit_rules_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'rule % keeps its history: instead of DELETE, UPDATE rate_limit_rules SET enabled = false', OLD.name;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.id, NEW.rule_uuid, NEW.name, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.rule_uuid, OLD.name, OLD.created_at) THEN
            RAISE EXCEPTION 'rule % keeps its name and id, which identify its counters: disable it and insert another', OLD.name;
        END IF;
        IF NEW.document = OLD.document AND
            (NEW.scope, NEW.tenant_id, NEW.http_method, NEW.path_pattern, NEW.tier, NEW.algorithm, NEW.max_requests,
             NEW.window_seconds, NEW.burst_capacity, NEW.priority) IS DISTINCT FROM
            (OLD.scope, OLD.tenant_id, OLD.http_method, OLD.path_pattern, OLD.tier, OLD.algorithm, OLD.max_requests,
             OLD.window_seconds, OLD.burst_capacity, OLD.priority) THEN
            RAISE EXCEPTION 'rule % has a document, which must match the columns: change it too, or set it to NULL to use '
                'the columns only', OLD.name;
        END IF;
    END IF;
    NEW.seq := current_setting('headgate.seq')::bigint;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The audit and the history are written row by row. A statement trigger would have to join the rows before and after, and the plan of
-- that join is cached: a plan made for few rows is quadratic for many, and all writers wait for it.
CREATE FUNCTION rate_limit_rules_after() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    made   bigint := rate_limit_next_version();
    was    jsonb  := CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) END;
    is_now jsonb  := to_jsonb(NEW);
    action text   := 'insert';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        action := CASE WHEN OLD.enabled = NEW.enabled THEN 'update' WHEN NEW.enabled THEN 'enable' ELSE 'disable' END;
    END IF;
    INSERT INTO rate_limit_rule_audit (rule_id, object, action, old_row, new_row, version, tenant, actor)
    VALUES (NEW.id, 'rule', action, was, is_now, made, NEW.owner, rate_limit_actor());
    INSERT INTO rate_limit_rule_versions (version, rule_id, rule) VALUES (made, NEW.id, CASE WHEN NEW.enabled THEN is_now END)
    ON CONFLICT (rule_id, version) DO UPDATE SET rule = excluded.rule;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Rows of overrides and exemptions. Deleted rows stay, marked as removed, until nodes have read them; the program purges them.
CREATE FUNCTION rate_limit_exceptions_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF current_setting('headgate.purge', true) = 'on' THEN
            RETURN OLD;
        END IF;
        EXECUTE format('UPDATE %I SET removed_at = now() WHERE id = $1 AND removed_at IS NULL', TG_TABLE_NAME) USING OLD.id;
        RETURN NULL;
    END IF;
    NEW.seq := current_setting('headgate.seq')::bigint;
    IF NEW.created_by = '' THEN
        NEW.created_by := rate_limit_actor();
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Returns the tenant of an exception: the owner of its rule, otherwise the tenant in its subject.
CREATE FUNCTION rate_limit_exception_tenant(rule bigint, subject text) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT coalesce((SELECT nullif(r.owner, '') FROM rate_limit_rules r WHERE r.id = rule), subject::json ->> 'tenant', '') $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Audits new overrides or exemptions, with one statement for a whole import. TG_ARGV[0] is the object's name in the audit.
CREATE FUNCTION rate_limit_exceptions_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (rule_id, object, action, new_row, tenant, actor)
    SELECT n.rule_id, TG_ARGV[0], 'insert', to_jsonb(n),
        rate_limit_exception_tenant(n.rule_id, to_jsonb(n) ->> 'subject'), rate_limit_actor() FROM new_rows n ORDER BY n.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Audits changed overrides or exemptions, row by row as for rules.
CREATE FUNCTION rate_limit_exceptions_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (rule_id, object, action, old_row, new_row, tenant, actor)
    VALUES (NEW.rule_id, TG_ARGV[0],
        CASE WHEN NEW.removed_at IS NOT NULL AND OLD.removed_at IS NULL THEN 'delete'
             WHEN NEW.removed_at IS NULL AND OLD.removed_at IS NOT NULL THEN 'insert' ELSE 'update' END,
        to_jsonb(OLD), to_jsonb(NEW), rate_limit_exception_tenant(NEW.rule_id, to_jsonb(NEW) ->> 'subject'), rate_limit_actor());
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION rate_limit_mode_after() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    made := rate_limit_next_version();
    UPDATE rate_limit_versions SET mode = NEW.mode WHERE version = made AND mode <> NEW.mode;
    INSERT INTO rate_limit_rule_audit (object, action, old_row, new_row, version, actor)
    VALUES ('mode', 'update', jsonb_build_object('mode', OLD.mode), jsonb_build_object('mode', NEW.mode), made, rate_limit_actor());
    PERFORM pg_notify('headgate', '');
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION rate_limit_tokens_after() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (object, action, old_row, new_row, tenant, actor)
    VALUES ('token', CASE WHEN TG_OP = 'INSERT' THEN 'insert' WHEN NEW.revoked_at IS NULL THEN 'update' ELSE 'disable' END,
        CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) - 'sum' END, to_jsonb(NEW) - 'sum', NEW.tenant, rate_limit_actor());
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Rejects changes of history and audit. A version can be changed until its transaction ends.
CREATE FUNCTION rate_limit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME <> 'rate_limit_rule_audit' THEN
        IF EXISTS (SELECT FROM rate_limit_state s WHERE s.changed_by = pg_current_xact_id() AND s.version = NEW.version) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only: % is not allowed', TG_TABLE_NAME, TG_OP;
END $$;
-- +goose StatementEnd

CREATE TRIGGER b_begin BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_rules
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_begin();
CREATE TRIGGER r_row BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_rules
    FOR EACH ROW EXECUTE FUNCTION rate_limit_rules_row();
CREATE TRIGGER z_row AFTER INSERT OR UPDATE ON rate_limit_rules
    FOR EACH ROW EXECUTE FUNCTION rate_limit_rules_after();

CREATE TRIGGER b_begin BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_overrides
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_begin();
CREATE TRIGGER r_row BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_overrides
    FOR EACH ROW EXECUTE FUNCTION rate_limit_exceptions_row();
CREATE TRIGGER z_insert AFTER INSERT ON rate_limit_overrides REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_exceptions_inserted('override');
CREATE TRIGGER z_update AFTER UPDATE ON rate_limit_overrides
    FOR EACH ROW EXECUTE FUNCTION rate_limit_exceptions_updated('override');

CREATE TRIGGER b_begin BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_exemptions
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_begin();
CREATE TRIGGER r_row BEFORE INSERT OR UPDATE OR DELETE ON rate_limit_exemptions
    FOR EACH ROW EXECUTE FUNCTION rate_limit_exceptions_row();
CREATE TRIGGER z_insert AFTER INSERT ON rate_limit_exemptions REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_exceptions_inserted('exemption');
CREATE TRIGGER z_update AFTER UPDATE ON rate_limit_exemptions
    FOR EACH ROW EXECUTE FUNCTION rate_limit_exceptions_updated('exemption');

CREATE TRIGGER z_mode AFTER UPDATE OF mode ON rate_limit_state
    FOR EACH ROW WHEN (OLD.mode <> NEW.mode) EXECUTE FUNCTION rate_limit_mode_after();
CREATE TRIGGER z_token AFTER INSERT OR UPDATE ON rate_limit_tokens
    FOR EACH ROW EXECUTE FUNCTION rate_limit_tokens_after();

CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON rate_limit_rule_audit
    FOR EACH ROW EXECUTE FUNCTION rate_limit_keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON rate_limit_rule_audit
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_keep();
CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON rate_limit_versions
    FOR EACH ROW EXECUTE FUNCTION rate_limit_keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON rate_limit_versions
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_keep();
CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON rate_limit_rule_versions
    FOR EACH ROW EXECUTE FUNCTION rate_limit_keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON rate_limit_rule_versions
    FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_keep();
