SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.rate_limit_actor() RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce(nullif(current_setting('headgate.actor', true), ''), 'sql:' || session_user) $$;
CREATE FUNCTION public.rate_limit_begin() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.rate_limit_exception_tenant(rule bigint, subject text) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce((SELECT nullif(r.owner, '') FROM rate_limit_rules r WHERE r.id = rule), subject::json ->> 'tenant', '') $$;
CREATE FUNCTION public.rate_limit_exceptions_inserted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (rule_id, object, action, new_row, tenant, actor)
    SELECT n.rule_id, TG_ARGV[0], 'insert', to_jsonb(n),
        rate_limit_exception_tenant(n.rule_id, to_jsonb(n) ->> 'subject'), rate_limit_actor() FROM new_rows n ORDER BY n.id;
    RETURN NULL;
END $$;
CREATE FUNCTION public.rate_limit_exceptions_row() RETURNS trigger
    LANGUAGE plpgsql
    AS $_$
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
END $_$;
CREATE FUNCTION public.rate_limit_exceptions_updated() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (rule_id, object, action, old_row, new_row, tenant, actor)
    VALUES (NEW.rule_id, TG_ARGV[0],
        CASE WHEN NEW.removed_at IS NOT NULL AND OLD.removed_at IS NULL THEN 'delete'
             WHEN NEW.removed_at IS NULL AND OLD.removed_at IS NOT NULL THEN 'insert' ELSE 'update' END,
        to_jsonb(OLD), to_jsonb(NEW), rate_limit_exception_tenant(NEW.rule_id, to_jsonb(NEW) ->> 'subject'), rate_limit_actor());
    RETURN NULL;
END $$;
CREATE FUNCTION public.rate_limit_is_network(value text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
    RETURN value::cidr IS NOT NULL;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
CREATE FUNCTION public.rate_limit_is_object(value text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
    RETURN json_typeof(value::json) = 'object';
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;
CREATE FUNCTION public.rate_limit_is_subject(value text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $_$
BEGIN
    RETURN (SELECT coalesce(bool_and(json_typeof(e.value) = 'string' AND
            (e.key NOT IN ('api_key', 'descriptor.api_key') OR e.value #>> '{}' ~ '^sha256:[A-Za-z0-9_-]{22}$')), false)
        FROM json_each(value::json) e);
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $_$;
CREATE FUNCTION public.rate_limit_keep() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME <> 'rate_limit_rule_audit' THEN
        IF EXISTS (SELECT FROM rate_limit_state s WHERE s.changed_by = pg_current_xact_id() AND s.version = NEW.version) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only: % is not allowed', TG_TABLE_NAME, TG_OP;
END $$;
CREATE FUNCTION public.rate_limit_mode_after() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.rate_limit_next_version() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.rate_limit_rules_after() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.rate_limit_rules_row() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.rate_limit_tokens_after() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO rate_limit_rule_audit (object, action, old_row, new_row, tenant, actor)
    VALUES ('token', CASE WHEN TG_OP = 'INSERT' THEN 'insert' WHEN NEW.revoked_at IS NULL THEN 'update' ELSE 'disable' END,
        CASE WHEN TG_OP = 'UPDATE' THEN to_jsonb(OLD) - 'sum' END, to_jsonb(NEW) - 'sum', NEW.tenant, rate_limit_actor());
    RETURN NULL;
END $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.rate_limit_changes (
    seq bigint NOT NULL,
    mark uuid DEFAULT gen_random_uuid() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.rate_limit_exemptions (
    id bigint NOT NULL,
    rule_id bigint,
    subject_type text NOT NULL,
    subject_value text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    expires_at timestamp with time zone,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_at timestamp with time zone,
    seq bigint DEFAULT 0 NOT NULL,
    CONSTRAINT rate_limit_exemptions_api_key_hashed CHECK (((subject_type <> 'api_key'::text) OR (subject_value ~ '^sha256:[A-Za-z0-9_-]{22}$'::text))),
    CONSTRAINT rate_limit_exemptions_expires_after_creation CHECK ((expires_at > created_at)),
    CONSTRAINT rate_limit_exemptions_network_valid CHECK (((subject_type <> 'ip_cidr'::text) OR public.rate_limit_is_network(subject_value))),
    CONSTRAINT rate_limit_exemptions_reason_check CHECK ((length(reason) <= 1000)),
    CONSTRAINT rate_limit_exemptions_subject_type_check CHECK ((subject_type = ANY (ARRAY['api_key'::text, 'user'::text, 'ip_cidr'::text, 'service_account'::text]))),
    CONSTRAINT rate_limit_exemptions_subject_value_check CHECK (((length(subject_value) >= 1) AND (length(subject_value) <= 1024)))
);
ALTER TABLE public.rate_limit_exemptions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_exemptions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_migrations (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.rate_limit_migrations ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.rate_limit_migrations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_nodes (
    node text NOT NULL,
    version bigint NOT NULL,
    seq bigint NOT NULL,
    problem text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.rate_limit_overrides (
    id bigint NOT NULL,
    rule_id bigint NOT NULL,
    limit_name text DEFAULT ''::text NOT NULL,
    subject text NOT NULL,
    limit_text text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    expires_at timestamp with time zone,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_at timestamp with time zone,
    seq bigint DEFAULT 0 NOT NULL,
    CONSTRAINT rate_limit_overrides_expires_after_creation CHECK ((expires_at > created_at)),
    CONSTRAINT rate_limit_overrides_limit_name_check CHECK ((length(limit_name) <= 128)),
    CONSTRAINT rate_limit_overrides_limit_text_check CHECK (((length(limit_text) >= 1) AND (length(limit_text) <= 1024))),
    CONSTRAINT rate_limit_overrides_reason_check CHECK ((length(reason) <= 1000)),
    CONSTRAINT rate_limit_overrides_subject_check CHECK ((length(subject) <= 4096)),
    CONSTRAINT rate_limit_overrides_subject_valid CHECK (public.rate_limit_is_subject(subject))
);
ALTER TABLE public.rate_limit_overrides ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_overrides_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_rule_audit (
    id bigint NOT NULL,
    rule_id bigint,
    object text NOT NULL,
    action text NOT NULL,
    old_row jsonb,
    new_row jsonb,
    version bigint,
    tenant text DEFAULT ''::text NOT NULL,
    actor text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT rate_limit_rule_audit_action_check CHECK ((action = ANY (ARRAY['insert'::text, 'update'::text, 'delete'::text, 'enable'::text, 'disable'::text]))),
    CONSTRAINT rate_limit_rule_audit_object_check CHECK ((object = ANY (ARRAY['rule'::text, 'override'::text, 'exemption'::text, 'mode'::text, 'token'::text, 'counter'::text])))
);
ALTER TABLE public.rate_limit_rule_audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_rule_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_rule_versions (
    version bigint NOT NULL,
    rule_id bigint NOT NULL,
    rule jsonb
);
CREATE TABLE public.rate_limit_rules (
    id bigint NOT NULL,
    rule_uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    tenant_id text,
    http_method text,
    path_pattern text,
    tier text,
    algorithm text,
    max_requests bigint,
    window_seconds double precision,
    burst_capacity bigint,
    priority integer DEFAULT 0 NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    document text,
    owner text DEFAULT ''::text NOT NULL,
    seq bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT rate_limit_rules_algorithm_check CHECK ((algorithm = ANY (ARRAY['token_bucket'::text, 'leaky_bucket'::text, 'fixed_window'::text, 'sliding_window'::text, 'sliding_log'::text, 'sliding_window_counter'::text, 'sliding_window_log'::text]))),
    CONSTRAINT rate_limit_rules_burst_capacity_check CHECK (((burst_capacity >= 0) AND (burst_capacity <= 1000000000))),
    CONSTRAINT rate_limit_rules_burst_of_token_bucket CHECK (((document IS NOT NULL) OR (COALESCE(burst_capacity, (0)::bigint) <= 0) OR (COALESCE(algorithm, 'token_bucket'::text) = 'token_bucket'::text))),
    CONSTRAINT rate_limit_rules_document_has_name CHECK (((NOT public.rate_limit_is_object(document)) OR (COALESCE(((document)::json ->> 'id'::text), ''::text) = name))),
    CONSTRAINT rate_limit_rules_document_is_object CHECK (public.rate_limit_is_object(document)),
    CONSTRAINT rate_limit_rules_document_or_columns CHECK (((document IS NOT NULL) OR ((max_requests IS NOT NULL) AND (window_seconds IS NOT NULL)))),
    CONSTRAINT rate_limit_rules_http_method_check CHECK ((http_method <> ''::text)),
    CONSTRAINT rate_limit_rules_max_requests_check CHECK (((max_requests >= 1) AND (max_requests <= 1000000000))),
    CONSTRAINT rate_limit_rules_name_valid CHECK (((name ~ '^[A-Za-z0-9_.:/-]{1,128}$'::text) AND (name !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'::text))),
    CONSTRAINT rate_limit_rules_path_pattern_check CHECK ((path_pattern <> ''::text)),
    CONSTRAINT rate_limit_rules_priority_check CHECK ((priority >= 0)),
    CONSTRAINT rate_limit_rules_rate_countable CHECK (((document IS NOT NULL) OR
CASE
    WHEN COALESCE((((window_seconds < (0.001)::double precision) OR (window_seconds > (31622400)::double precision)) OR (max_requests < 1)), true) THEN true
    WHEN (algorithm = ANY (ARRAY['sliding_log'::text, 'sliding_window_log'::text])) THEN (max_requests <= 10000)
    WHEN (COALESCE(algorithm, 'token_bucket'::text) = ANY (ARRAY['token_bucket'::text, 'leaky_bucket'::text])) THEN (((max_requests)::double precision <= (window_seconds * (1000000000)::double precision)) AND (((COALESCE(burst_capacity, (0)::bigint))::double precision * window_seconds) <= (((max_requests)::numeric * 316224000.0))::double precision))
    ELSE true
END)),
    CONSTRAINT rate_limit_rules_scope_check CHECK ((scope = ANY (ARRAY['global'::text, 'tenant'::text, 'endpoint'::text]))),
    CONSTRAINT rate_limit_rules_tenant_id_check CHECK ((tenant_id <> ''::text)),
    CONSTRAINT rate_limit_rules_tier_check CHECK ((tier <> ''::text)),
    CONSTRAINT rate_limit_rules_window_seconds_check CHECK ((((window_seconds >= (0.001)::double precision) AND (window_seconds <= (31622400)::double precision)) AND (abs(((window_seconds * (1000)::double precision) - round((window_seconds * (1000)::double precision)))) < (0.01)::double precision)))
);
ALTER TABLE public.rate_limit_rules ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_rules_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_state (
    one boolean DEFAULT true NOT NULL,
    format integer DEFAULT 1 NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    seq bigint DEFAULT 0 NOT NULL,
    purged bigint DEFAULT 0 NOT NULL,
    mode text DEFAULT 'enforce'::text NOT NULL,
    changed_by xid8,
    CONSTRAINT rate_limit_state_format_check CHECK ((format > 0)),
    CONSTRAINT rate_limit_state_mode_check CHECK ((mode = ANY (ARRAY['enforce'::text, 'shadow'::text, 'off'::text]))),
    CONSTRAINT rate_limit_state_one_check CHECK (one),
    CONSTRAINT rate_limit_state_purged_check CHECK ((purged >= 0)),
    CONSTRAINT rate_limit_state_seq_check CHECK ((seq >= 0)),
    CONSTRAINT rate_limit_state_version_check CHECK ((version >= 0))
);
CREATE TABLE public.rate_limit_tenant_changes (
    tenant text NOT NULL,
    drained_at timestamp with time zone NOT NULL,
    CONSTRAINT rate_limit_tenant_changes_tenant_check CHECK ((tenant <> ''::text))
);
CREATE TABLE public.rate_limit_tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    sum bytea NOT NULL,
    role text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT rate_limit_tokens_expires_after_creation CHECK ((expires_at > created_at)),
    CONSTRAINT rate_limit_tokens_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'::text)),
    CONSTRAINT rate_limit_tokens_role_check CHECK ((role = ANY (ARRAY['self'::text, 'viewer'::text, 'editor'::text, 'admin'::text]))),
    CONSTRAINT rate_limit_tokens_subject_of_self CHECK (((subject = ''::text) OR ((role = 'self'::text) AND (length(subject) <= 1024) AND (subject ~ '^(user=.|api_key=sha256:[A-Za-z0-9_-]{22}$)'::text)))),
    CONSTRAINT rate_limit_tokens_sum_check CHECK ((length(sum) = 32))
);
ALTER TABLE public.rate_limit_tokens ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rate_limit_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit_versions (
    version bigint NOT NULL,
    mode text NOT NULL,
    actor text NOT NULL,
    comment text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT rate_limit_versions_mode_check CHECK ((mode = ANY (ARRAY['enforce'::text, 'shadow'::text, 'off'::text]))),
    CONSTRAINT rate_limit_versions_version_check CHECK ((version > 0))
);
CREATE TABLE public.usage_daily (
    id bigint NOT NULL,
    day date NOT NULL,
    rule text NOT NULL,
    subject text NOT NULL,
    attributes text,
    units bigint DEFAULT 0 NOT NULL,
    denied bigint DEFAULT 0 NOT NULL,
    CONSTRAINT usage_daily_attributes_check CHECK (public.rate_limit_is_object(attributes)),
    CONSTRAINT usage_daily_denied_check CHECK ((denied >= 0)),
    CONSTRAINT usage_daily_rule_check CHECK ((rule <> ''::text)),
    CONSTRAINT usage_daily_subject_check CHECK ((subject <> ''::text))
);
ALTER TABLE public.usage_daily ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.usage_daily_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO public.rate_limit_changes VALUES (1, '85740419-c98d-46f9-9b31-0501dd8447f5', '2026-11-17 11:58:32.867681+00');
INSERT INTO public.rate_limit_changes VALUES (2, '447b685d-e377-4dbd-9f1b-dc58eee11c49', '2026-11-17 11:58:32.928995+00');
INSERT INTO public.rate_limit_changes VALUES (3, '6e76a390-6665-42e3-971f-d0a1dcab099f', '2026-11-17 11:58:32.928995+00');
INSERT INTO public.rate_limit_changes VALUES (4, '5777f759-4f79-4b2c-a328-456f46cc721c', '2026-11-17 11:58:32.944272+00');
INSERT INTO public.rate_limit_changes VALUES (5, '6df854e9-f4f8-481f-9244-ed064b8177e5', '2026-11-17 11:58:32.944272+00');
INSERT INTO public.rate_limit_exemptions OVERRIDING SYSTEM VALUE VALUES (1, 10, 'user', 'ann', '', NULL, 'ann', '2026-11-17 11:58:32.944272+00', NULL, 5);
INSERT INTO public.rate_limit_migrations VALUES (1, 0, true, '2026-11-17 11:58:32.569357');
INSERT INTO public.rate_limit_migrations VALUES (2, 1, true, '2026-11-17 11:58:32.589367');
INSERT INTO public.rate_limit_nodes VALUES ('vm:0', 1, 5, '', '2026-11-17 11:58:32.771886+00', '2026-11-17 11:58:32.953155+00');
INSERT INTO public.rate_limit_overrides OVERRIDING SYSTEM VALUE VALUES (1, 9, '', '{"user":"ann"}', '50/day', '', NULL, 'ann', '2026-11-17 11:58:32.928995+00', '2026-11-17 11:58:32.928995+00', NULL, 3);
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (1, 1, 'rule', 'insert', NULL, '{"id": 1, "seq": 1, "name": "token-bucket", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"token-bucket\",\"by\":[\"user\"],\"limit\":\"24/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "8d28edfe-8a4d-42a9-ba88-c690232bfab6", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.876764+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.897661+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (2, 2, 'rule', 'insert', NULL, '{"id": 2, "seq": 1, "name": "leaky-bucket", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"leaky-bucket\",\"by\":[\"user\"],\"limit\":\"24/day\",\"algorithm\":\"leaky_bucket\"}", "priority": 0, "algorithm": "leaky_bucket", "rule_uuid": "cd1a5aa9-02e5-4fb8-8259-5b0f43a6e810", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886163+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.898922+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (3, 3, 'rule', 'insert', NULL, '{"id": 3, "seq": 1, "name": "fixed-window", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"fixed-window\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"fixed_window\"}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "9a482898-2951-4ea3-93e5-09b133139ad3", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886286+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899148+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (4, 4, 'rule', 'insert', NULL, '{"id": 4, "seq": 1, "name": "month", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"month\",\"by\":[\"user\"],\"limit\":{\"quota\":1000,\"calendar\":\"month\",\"timezone\":\"Europe/Berlin\"}}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "105f6c31-3a2a-4b31-bcab-7f011d5b7de3", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886316+00:00", "http_method": null, "max_requests": 1000, "path_pattern": null, "burst_capacity": null, "window_seconds": null}', 1, '', 'ann', '2026-11-17 11:58:32.899292+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (5, 5, 'rule', 'insert', NULL, '{"id": 5, "seq": 1, "name": "sliding-window", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"sliding-window\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"sliding_window\"}", "priority": 0, "algorithm": "sliding_window", "rule_uuid": "83393418-761f-4e05-ae96-fb334281adad", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886339+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899433+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (6, 6, 'rule', 'insert', NULL, '{"id": 6, "seq": 1, "name": "sliding-log", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"sliding-log\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"sliding_log\"}", "priority": 0, "algorithm": "sliding_log", "rule_uuid": "efeb7565-e6f1-441b-81b5-4d85e1a22926", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886366+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899557+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (7, 7, 'rule', 'insert', NULL, '{"id": 7, "seq": 1, "name": "two-limits", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"two-limits\",\"by\":[\"user\"],\"limits\":{\"day\":\"50/day\",\"week\":\"100/week\"}}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "35cf0e78-1805-4b27-ae24-b0692ab5d6b4", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886394+00:00", "http_method": null, "max_requests": 50, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899698+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (8, 8, 'rule', 'insert', NULL, '{"id": 8, "seq": 1, "name": "by-key", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"by-key\",\"by\":[\"api_key\"],\"limit\":\"24/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "87851ba8-769a-40fb-a220-2b5dcb8a2a04", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886418+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899776+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (9, 9, 'rule', 'insert', NULL, '{"id": 9, "seq": 1, "name": "raised", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"raised\",\"by\":[\"user\"],\"limit\":\"1/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "b228284a-f1f4-46c2-a039-52560ddacd1a", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886439+00:00", "http_method": null, "max_requests": 1, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899844+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (10, 10, 'rule', 'insert', NULL, '{"id": 10, "seq": 1, "name": "exempted", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"exempted\",\"by\":[\"user\"],\"limit\":\"1/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "9cc3a55a-6eba-46bf-a995-f08b4ee2d70b", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886459+00:00", "http_method": null, "max_requests": 1, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899911+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (11, 11, 'rule', 'insert', NULL, '{"id": 11, "seq": 1, "name": "used-up", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"used-up\",\"by\":[\"user\"],\"limit\":\"3/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "b00b7207-e0a1-43ab-8c29-389ac9852cd1", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886482+00:00", "http_method": null, "max_requests": 3, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.899978+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (12, 12, 'rule', 'insert', NULL, '{"id": 12, "seq": 1, "name": "reserved", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"reserved\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"fixed_window\"}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "63c9c1a8-3a33-4c24-bdff-95cb8c0b3a3a", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886503+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.900043+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (13, 13, 'rule', 'insert', NULL, '{"id": 13, "seq": 1, "name": "in-flight", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"in-flight\",\"by\":[\"user\"],\"limit\":{\"concurrent\":5,\"lease\":\"1h\"}}", "priority": 0, "algorithm": null, "rule_uuid": "302b5e4f-4dc8-4d5d-be70-8b24c530e8b1", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886525+00:00", "http_method": null, "max_requests": null, "path_pattern": null, "burst_capacity": null, "window_seconds": null}', 1, '', 'ann', '2026-11-17 11:58:32.900201+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (14, 14, 'rule', 'insert', NULL, '{"id": 14, "seq": 1, "name": "metered", "tier": null, "owner": "", "scope": "tenant", "enabled": true, "document": "{\"id\":\"metered\",\"by\":[\"tenant\"],\"limit\":\"100/day\",\"meter\":true}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "e0dafa20-ccf5-4da5-a393-d2321673b165", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886552+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}', 1, '', 'ann', '2026-11-17 11:58:32.901119+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (15, 9, 'override', 'insert', NULL, '{"id": 1, "seq": 3, "reason": "", "rule_id": 9, "subject": "{\"user\":\"ann\"}", "created_at": "2026-11-17T11:58:32.928995+00:00", "created_by": "ann", "expires_at": null, "limit_name": "", "limit_text": "50/day", "removed_at": null, "updated_at": "2026-11-17T11:58:32.928995+00:00"}', NULL, '', 'ann', '2026-11-17 11:58:32.934358+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (16, 10, 'exemption', 'insert', NULL, '{"id": 1, "seq": 5, "reason": "", "rule_id": 10, "created_at": "2026-11-17T11:58:32.944272+00:00", "created_by": "ann", "expires_at": null, "removed_at": null, "subject_type": "user", "subject_value": "ann"}', NULL, '', 'ann', '2026-11-17 11:58:32.946508+00');
INSERT INTO public.rate_limit_rule_audit OVERRIDING SYSTEM VALUE VALUES (17, NULL, 'token', 'insert', NULL, '{"id": 1, "name": "bob", "role": "viewer", "tenant": "", "subject": "", "created_at": "2026-11-17T11:58:32.953347+00:00", "created_by": "ann", "expires_at": null, "revoked_at": null}', NULL, '', 'ann', '2026-11-17 11:58:32.960972+00');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 1, '{"id": 1, "seq": 1, "name": "token-bucket", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"token-bucket\",\"by\":[\"user\"],\"limit\":\"24/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "8d28edfe-8a4d-42a9-ba88-c690232bfab6", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.876764+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 2, '{"id": 2, "seq": 1, "name": "leaky-bucket", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"leaky-bucket\",\"by\":[\"user\"],\"limit\":\"24/day\",\"algorithm\":\"leaky_bucket\"}", "priority": 0, "algorithm": "leaky_bucket", "rule_uuid": "cd1a5aa9-02e5-4fb8-8259-5b0f43a6e810", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886163+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 3, '{"id": 3, "seq": 1, "name": "fixed-window", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"fixed-window\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"fixed_window\"}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "9a482898-2951-4ea3-93e5-09b133139ad3", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886286+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 4, '{"id": 4, "seq": 1, "name": "month", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"month\",\"by\":[\"user\"],\"limit\":{\"quota\":1000,\"calendar\":\"month\",\"timezone\":\"Europe/Berlin\"}}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "105f6c31-3a2a-4b31-bcab-7f011d5b7de3", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886316+00:00", "http_method": null, "max_requests": 1000, "path_pattern": null, "burst_capacity": null, "window_seconds": null}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 5, '{"id": 5, "seq": 1, "name": "sliding-window", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"sliding-window\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"sliding_window\"}", "priority": 0, "algorithm": "sliding_window", "rule_uuid": "83393418-761f-4e05-ae96-fb334281adad", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886339+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 6, '{"id": 6, "seq": 1, "name": "sliding-log", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"sliding-log\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"sliding_log\"}", "priority": 0, "algorithm": "sliding_log", "rule_uuid": "efeb7565-e6f1-441b-81b5-4d85e1a22926", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886366+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 7, '{"id": 7, "seq": 1, "name": "two-limits", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"two-limits\",\"by\":[\"user\"],\"limits\":{\"day\":\"50/day\",\"week\":\"100/week\"}}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "35cf0e78-1805-4b27-ae24-b0692ab5d6b4", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886394+00:00", "http_method": null, "max_requests": 50, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 8, '{"id": 8, "seq": 1, "name": "by-key", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"by-key\",\"by\":[\"api_key\"],\"limit\":\"24/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "87851ba8-769a-40fb-a220-2b5dcb8a2a04", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886418+00:00", "http_method": null, "max_requests": 24, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 9, '{"id": 9, "seq": 1, "name": "raised", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"raised\",\"by\":[\"user\"],\"limit\":\"1/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "b228284a-f1f4-46c2-a039-52560ddacd1a", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886439+00:00", "http_method": null, "max_requests": 1, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 10, '{"id": 10, "seq": 1, "name": "exempted", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"exempted\",\"by\":[\"user\"],\"limit\":\"1/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "9cc3a55a-6eba-46bf-a995-f08b4ee2d70b", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886459+00:00", "http_method": null, "max_requests": 1, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 11, '{"id": 11, "seq": 1, "name": "used-up", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"used-up\",\"by\":[\"user\"],\"limit\":\"3/day\"}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "b00b7207-e0a1-43ab-8c29-389ac9852cd1", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886482+00:00", "http_method": null, "max_requests": 3, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 12, '{"id": 12, "seq": 1, "name": "reserved", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"reserved\",\"by\":[\"user\"],\"limit\":\"100/day\",\"algorithm\":\"fixed_window\"}", "priority": 0, "algorithm": "fixed_window", "rule_uuid": "63c9c1a8-3a33-4c24-bdff-95cb8c0b3a3a", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886503+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 13, '{"id": 13, "seq": 1, "name": "in-flight", "tier": null, "owner": "", "scope": "global", "enabled": true, "document": "{\"id\":\"in-flight\",\"by\":[\"user\"],\"limit\":{\"concurrent\":5,\"lease\":\"1h\"}}", "priority": 0, "algorithm": null, "rule_uuid": "302b5e4f-4dc8-4d5d-be70-8b24c530e8b1", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886525+00:00", "http_method": null, "max_requests": null, "path_pattern": null, "burst_capacity": null, "window_seconds": null}');
INSERT INTO public.rate_limit_rule_versions VALUES (1, 14, '{"id": 14, "seq": 1, "name": "metered", "tier": null, "owner": "", "scope": "tenant", "enabled": true, "document": "{\"id\":\"metered\",\"by\":[\"tenant\"],\"limit\":\"100/day\",\"meter\":true}", "priority": 0, "algorithm": "token_bucket", "rule_uuid": "e0dafa20-ccf5-4da5-a393-d2321673b165", "tenant_id": null, "created_at": "2026-11-17T11:58:32.867681+00:00", "updated_at": "2026-11-17T11:58:32.886552+00:00", "http_method": null, "max_requests": 100, "path_pattern": null, "burst_capacity": null, "window_seconds": 86400}');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (1, '8d28edfe-8a4d-42a9-ba88-c690232bfab6', 'token-bucket', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 24, 86400, NULL, 0, true, '{"id":"token-bucket","by":["user"],"limit":"24/day"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.876764+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (2, 'cd1a5aa9-02e5-4fb8-8259-5b0f43a6e810', 'leaky-bucket', 'global', NULL, NULL, NULL, NULL, 'leaky_bucket', 24, 86400, NULL, 0, true, '{"id":"leaky-bucket","by":["user"],"limit":"24/day","algorithm":"leaky_bucket"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886163+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (3, '9a482898-2951-4ea3-93e5-09b133139ad3', 'fixed-window', 'global', NULL, NULL, NULL, NULL, 'fixed_window', 100, 86400, NULL, 0, true, '{"id":"fixed-window","by":["user"],"limit":"100/day","algorithm":"fixed_window"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886286+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (4, '105f6c31-3a2a-4b31-bcab-7f011d5b7de3', 'month', 'global', NULL, NULL, NULL, NULL, 'fixed_window', 1000, NULL, NULL, 0, true, '{"id":"month","by":["user"],"limit":{"quota":1000,"calendar":"month","timezone":"Europe/Berlin"}}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886316+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (5, '83393418-761f-4e05-ae96-fb334281adad', 'sliding-window', 'global', NULL, NULL, NULL, NULL, 'sliding_window', 100, 86400, NULL, 0, true, '{"id":"sliding-window","by":["user"],"limit":"100/day","algorithm":"sliding_window"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886339+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (6, 'efeb7565-e6f1-441b-81b5-4d85e1a22926', 'sliding-log', 'global', NULL, NULL, NULL, NULL, 'sliding_log', 100, 86400, NULL, 0, true, '{"id":"sliding-log","by":["user"],"limit":"100/day","algorithm":"sliding_log"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886366+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (7, '35cf0e78-1805-4b27-ae24-b0692ab5d6b4', 'two-limits', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 50, 86400, NULL, 0, true, '{"id":"two-limits","by":["user"],"limits":{"day":"50/day","week":"100/week"}}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886394+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (8, '87851ba8-769a-40fb-a220-2b5dcb8a2a04', 'by-key', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 24, 86400, NULL, 0, true, '{"id":"by-key","by":["api_key"],"limit":"24/day"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886418+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (9, 'b228284a-f1f4-46c2-a039-52560ddacd1a', 'raised', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 1, 86400, NULL, 0, true, '{"id":"raised","by":["user"],"limit":"1/day"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886439+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (10, '9cc3a55a-6eba-46bf-a995-f08b4ee2d70b', 'exempted', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 1, 86400, NULL, 0, true, '{"id":"exempted","by":["user"],"limit":"1/day"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886459+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (11, 'b00b7207-e0a1-43ab-8c29-389ac9852cd1', 'used-up', 'global', NULL, NULL, NULL, NULL, 'token_bucket', 3, 86400, NULL, 0, true, '{"id":"used-up","by":["user"],"limit":"3/day"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886482+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (12, '63c9c1a8-3a33-4c24-bdff-95cb8c0b3a3a', 'reserved', 'global', NULL, NULL, NULL, NULL, 'fixed_window', 100, 86400, NULL, 0, true, '{"id":"reserved","by":["user"],"limit":"100/day","algorithm":"fixed_window"}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886503+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (13, '302b5e4f-4dc8-4d5d-be70-8b24c530e8b1', 'in-flight', 'global', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, '{"id":"in-flight","by":["user"],"limit":{"concurrent":5,"lease":"1h"}}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886525+00');
INSERT INTO public.rate_limit_rules OVERRIDING SYSTEM VALUE VALUES (14, 'e0dafa20-ccf5-4da5-a393-d2321673b165', 'metered', 'tenant', NULL, NULL, NULL, NULL, 'token_bucket', 100, 86400, NULL, 0, true, '{"id":"metered","by":["tenant"],"limit":"100/day","meter":true}', '', 1, '2026-11-17 11:58:32.867681+00', '2026-11-17 11:58:32.886552+00');
INSERT INTO public.rate_limit_state VALUES (true, 1, 1, 5, 0, 'enforce', '727');
INSERT INTO public.rate_limit_tokens OVERRIDING SYSTEM VALUE VALUES (1, 'bob', '\x662ae654104102e3c258bd336d124892357eaa1955061e2feae867ad3ccb53f0', 'viewer', '', '', 'ann', '2026-11-17 11:58:32.953347+00', NULL, NULL);
INSERT INTO public.rate_limit_versions VALUES (1, 'enforce', 'ann', '', '2026-11-17 11:58:32.867681+00');
INSERT INTO public.usage_daily OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-17', 'metered', 'Lnt8w2HxmGaGDVFG8jCceA', '{"tenant":"acme"}', 9, 0);
SELECT pg_catalog.setval('public.rate_limit_exemptions_id_seq', 1, true);
SELECT pg_catalog.setval('public.rate_limit_migrations_id_seq', 2, true);
SELECT pg_catalog.setval('public.rate_limit_overrides_id_seq', 1, true);
SELECT pg_catalog.setval('public.rate_limit_rule_audit_id_seq', 17, true);
SELECT pg_catalog.setval('public.rate_limit_rules_id_seq', 14, true);
SELECT pg_catalog.setval('public.rate_limit_tokens_id_seq', 1, true);
SELECT pg_catalog.setval('public.usage_daily_id_seq', 1, true);
ALTER TABLE ONLY public.rate_limit_changes
    ADD CONSTRAINT rate_limit_changes_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.rate_limit_exemptions
    ADD CONSTRAINT rate_limit_exemptions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_exemptions
    ADD CONSTRAINT rate_limit_exemptions_rule_id_subject_type_subject_value_key UNIQUE NULLS NOT DISTINCT (rule_id, subject_type, subject_value);
ALTER TABLE ONLY public.rate_limit_migrations
    ADD CONSTRAINT rate_limit_migrations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_nodes
    ADD CONSTRAINT rate_limit_nodes_pkey PRIMARY KEY (node);
ALTER TABLE ONLY public.rate_limit_overrides
    ADD CONSTRAINT rate_limit_overrides_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_overrides
    ADD CONSTRAINT rate_limit_overrides_rule_id_subject_limit_name_key UNIQUE (rule_id, subject, limit_name);
ALTER TABLE ONLY public.rate_limit_rule_audit
    ADD CONSTRAINT rate_limit_rule_audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_rule_versions
    ADD CONSTRAINT rate_limit_rule_versions_pkey PRIMARY KEY (rule_id, version);
ALTER TABLE ONLY public.rate_limit_rules
    ADD CONSTRAINT rate_limit_rules_name_key UNIQUE (name);
ALTER TABLE ONLY public.rate_limit_rules
    ADD CONSTRAINT rate_limit_rules_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_rules
    ADD CONSTRAINT rate_limit_rules_rule_uuid_key UNIQUE (rule_uuid);
ALTER TABLE ONLY public.rate_limit_state
    ADD CONSTRAINT rate_limit_state_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.rate_limit_tenant_changes
    ADD CONSTRAINT rate_limit_tenant_changes_pkey PRIMARY KEY (tenant);
ALTER TABLE ONLY public.rate_limit_tokens
    ADD CONSTRAINT rate_limit_tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rate_limit_tokens
    ADD CONSTRAINT rate_limit_tokens_sum_key UNIQUE (sum);
ALTER TABLE ONLY public.rate_limit_versions
    ADD CONSTRAINT rate_limit_versions_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.usage_daily
    ADD CONSTRAINT usage_daily_id_key UNIQUE (id);
ALTER TABLE ONLY public.usage_daily
    ADD CONSTRAINT usage_daily_pkey PRIMARY KEY (day, rule, subject);
CREATE INDEX rate_limit_exemptions_seq_idx ON public.rate_limit_exemptions USING btree (seq);
CREATE INDEX rate_limit_overrides_seq_idx ON public.rate_limit_overrides USING btree (seq);
CREATE INDEX rate_limit_overrides_tenant_idx ON public.rate_limit_overrides USING btree ((((subject)::json ->> 'tenant'::text)));
CREATE INDEX rate_limit_rule_audit_rule_id_id_idx ON public.rate_limit_rule_audit USING btree (rule_id, id);
CREATE INDEX rate_limit_rule_audit_tenant_id_idx ON public.rate_limit_rule_audit USING btree (tenant, id);
CREATE INDEX rate_limit_rule_versions_version_idx ON public.rate_limit_rule_versions USING btree (version);
CREATE INDEX rate_limit_rules_owner_idx ON public.rate_limit_rules USING btree (owner);
CREATE INDEX rate_limit_rules_seq_idx ON public.rate_limit_rules USING btree (seq);
CREATE INDEX rate_limit_rules_tenant_id_idx ON public.rate_limit_rules USING btree (tenant_id);
CREATE INDEX usage_daily_attributes_day_idx ON public.usage_daily USING btree (attributes, day);
CREATE TRIGGER b_begin BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_exemptions FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_begin();
CREATE TRIGGER b_begin BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_overrides FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_begin();
CREATE TRIGGER b_begin BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_rules FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_begin();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON public.rate_limit_rule_audit FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON public.rate_limit_rule_versions FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON public.rate_limit_versions FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON public.rate_limit_rule_audit FOR EACH ROW EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON public.rate_limit_rule_versions FOR EACH ROW EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON public.rate_limit_versions FOR EACH ROW EXECUTE FUNCTION public.rate_limit_keep();
CREATE TRIGGER r_row BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_exemptions FOR EACH ROW EXECUTE FUNCTION public.rate_limit_exceptions_row();
CREATE TRIGGER r_row BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_overrides FOR EACH ROW EXECUTE FUNCTION public.rate_limit_exceptions_row();
CREATE TRIGGER r_row BEFORE INSERT OR DELETE OR UPDATE ON public.rate_limit_rules FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rules_row();
CREATE TRIGGER z_insert AFTER INSERT ON public.rate_limit_exemptions REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_exceptions_inserted('exemption');
CREATE TRIGGER z_insert AFTER INSERT ON public.rate_limit_overrides REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.rate_limit_exceptions_inserted('override');
CREATE TRIGGER z_mode AFTER UPDATE OF mode ON public.rate_limit_state FOR EACH ROW WHEN ((old.mode <> new.mode)) EXECUTE FUNCTION public.rate_limit_mode_after();
CREATE TRIGGER z_row AFTER INSERT OR UPDATE ON public.rate_limit_rules FOR EACH ROW EXECUTE FUNCTION public.rate_limit_rules_after();
CREATE TRIGGER z_token AFTER INSERT OR UPDATE ON public.rate_limit_tokens FOR EACH ROW EXECUTE FUNCTION public.rate_limit_tokens_after();
CREATE TRIGGER z_update AFTER UPDATE ON public.rate_limit_exemptions FOR EACH ROW EXECUTE FUNCTION public.rate_limit_exceptions_updated('exemption');
CREATE TRIGGER z_update AFTER UPDATE ON public.rate_limit_overrides FOR EACH ROW EXECUTE FUNCTION public.rate_limit_exceptions_updated('override');
ALTER TABLE ONLY public.rate_limit_exemptions
    ADD CONSTRAINT rate_limit_exemptions_rule_id_fkey FOREIGN KEY (rule_id) REFERENCES public.rate_limit_rules(id);
ALTER TABLE ONLY public.rate_limit_overrides
    ADD CONSTRAINT rate_limit_overrides_rule_id_fkey FOREIGN KEY (rule_id) REFERENCES public.rate_limit_rules(id);
ALTER TABLE ONLY public.rate_limit_rule_versions
    ADD CONSTRAINT rate_limit_rule_versions_rule_id_fkey FOREIGN KEY (rule_id) REFERENCES public.rate_limit_rules(id);
ALTER TABLE ONLY public.rate_limit_rule_versions
    ADD CONSTRAINT rate_limit_rule_versions_version_fkey FOREIGN KEY (version) REFERENCES public.rate_limit_versions(version);
