-- name: State :one
SELECT version, seq, purged, mode FROM rate_limit_state;

-- name: LockState :one
SELECT version, seq, purged, mode FROM rate_limit_state FOR UPDATE;

-- name: Mark :one
SELECT mark FROM rate_limit_changes WHERE seq = $1;

-- name: SetMode :exec
UPDATE rate_limit_state SET mode = $1 WHERE mode <> $1;

-- name: SetActor :exec
SELECT set_config('headgate.actor', sqlc.arg(actor)::text, true), set_config('headgate.comment', sqlc.arg(comment)::text, true);

-- name: RulesSince :many
SELECT * FROM rate_limit_rules WHERE seq > $1 ORDER BY id;

-- name: ListRules :many
SELECT * FROM rate_limit_rules
WHERE id > sqlc.arg(after) AND (sqlc.narg(enabled)::boolean IS NULL OR enabled = sqlc.narg(enabled))
  AND (sqlc.narg(scope)::text IS NULL OR scope = sqlc.narg(scope))
  AND (sqlc.narg(tenant)::text IS NULL OR tenant_id = sqlc.narg(tenant))
  AND (sqlc.narg(owner)::text IS NULL OR owner = sqlc.narg(owner))
ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: RuleByName :one
SELECT * FROM rate_limit_rules WHERE name = sqlc.arg(name)
   OR rule_uuid = CASE WHEN sqlc.arg(name) ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN sqlc.arg(name)::uuid END
ORDER BY name = sqlc.arg(name) DESC LIMIT 1;

-- name: InsertRules :exec
INSERT INTO rate_limit_rules (name, scope, tenant_id, http_method, path_pattern, tier, algorithm, max_requests, window_seconds,
    burst_capacity, priority, enabled, document, owner)
SELECT name, scope, tenant_id, http_method, path_pattern, tier, algorithm, max_requests, window_seconds,
    burst_capacity, priority, enabled, document, owner
FROM jsonb_to_recordset(sqlc.arg(rules)::jsonb) AS n (id bigint, name text, scope text, tenant_id text, http_method text,
    path_pattern text, tier text, algorithm text, max_requests bigint, window_seconds double precision, burst_capacity bigint,
    priority integer, enabled boolean, document text, owner text);

-- name: UpdateRules :exec
UPDATE rate_limit_rules r SET scope = n.scope, tenant_id = n.tenant_id, http_method = n.http_method,
    path_pattern = n.path_pattern, tier = n.tier, algorithm = n.algorithm, max_requests = n.max_requests,
    window_seconds = n.window_seconds, burst_capacity = n.burst_capacity, priority = n.priority, enabled = n.enabled,
    document = n.document, owner = n.owner
FROM jsonb_to_recordset(sqlc.arg(rules)::jsonb) AS n (id bigint, name text, scope text, tenant_id text, http_method text,
    path_pattern text, tier text, algorithm text, max_requests bigint, window_seconds double precision, burst_capacity bigint,
    priority integer, enabled boolean, document text, owner text)
WHERE r.id = n.id;

-- name: ListVersions :many
SELECT v.version AS number, v.mode, v.actor, v.comment, v.created_at,
    (SELECT count(*) FROM rate_limit_rule_versions r WHERE r.version = v.version) AS changed
FROM rate_limit_versions v WHERE v.version < sqlc.arg(before) ORDER BY v.version DESC LIMIT sqlc.arg(max_rows);

-- name: RulesAt :many
SELECT r.rule_id, r.rule FROM (
    SELECT DISTINCT ON (rule_id) rule_id, rule FROM rate_limit_rule_versions
    WHERE version <= $1 ORDER BY rule_id, version DESC
) r WHERE r.rule IS NOT NULL ORDER BY r.rule_id;

-- name: AddExemption :one
INSERT INTO rate_limit_exemptions (rule_id, subject_type, subject_value, reason, expires_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (rule_id, subject_type, subject_value) DO UPDATE SET reason = excluded.reason, expires_at = excluded.expires_at,
    created_by = excluded.created_by, removed_at = NULL,
    created_at = CASE WHEN rate_limit_exemptions.removed_at IS NULL THEN rate_limit_exemptions.created_at ELSE now() END
RETURNING id, subject_value, created_by, created_at;

-- name: RemoveExemption :one
UPDATE rate_limit_exemptions SET removed_at = now() WHERE id = $1 AND removed_at IS NULL RETURNING id;

-- name: ListExemptions :many
SELECT e.id, coalesce(r.name, '')::text AS rule, e.subject_type, e.subject_value, e.reason, e.expires_at,
    e.created_by, e.created_at
FROM rate_limit_exemptions e LEFT JOIN rate_limit_rules r ON r.id = e.rule_id
WHERE e.id > sqlc.arg(after) AND e.removed_at IS NULL
  AND (sqlc.narg(rule)::bigint IS NULL OR e.rule_id = sqlc.narg(rule))
  AND (sqlc.narg(tenant)::text IS NULL OR r.owner = sqlc.narg(tenant))
ORDER BY e.id LIMIT sqlc.arg(max_rows);

-- name: RemoveOverride :one
UPDATE rate_limit_overrides SET removed_at = now() WHERE id = $1 AND removed_at IS NULL RETURNING id;

-- name: ListOverrides :many
SELECT o.*, r.name AS rule FROM rate_limit_overrides o JOIN rate_limit_rules r ON r.id = o.rule_id
WHERE o.id > sqlc.arg(after) AND o.removed_at IS NULL
  AND (sqlc.narg(rule)::bigint IS NULL OR o.rule_id = sqlc.narg(rule))
  AND (sqlc.narg(subject)::text IS NULL OR o.subject = sqlc.narg(subject))
ORDER BY o.id LIMIT sqlc.arg(max_rows);

-- name: ListTenantOverrides :many
SELECT o.*, r.name AS rule FROM rate_limit_overrides o JOIN rate_limit_rules r ON r.id = o.rule_id
WHERE o.id = ANY (ARRAY( -- an array, since the planner may underestimate the cost of a join with all overrides
    SELECT x.id FROM rate_limit_overrides x JOIN rate_limit_rules y ON y.id = x.rule_id WHERE y.owner = sqlc.arg(tenant)::text
    UNION SELECT x.id FROM rate_limit_overrides x WHERE x.subject::json ->> 'tenant' = sqlc.arg(tenant)::text))
  AND o.id > sqlc.arg(after) AND o.removed_at IS NULL
  AND (sqlc.narg(rule)::bigint IS NULL OR o.rule_id = sqlc.narg(rule))
  AND (sqlc.narg(subject)::text IS NULL OR o.subject = sqlc.narg(subject))
ORDER BY o.id LIMIT sqlc.arg(max_rows);

-- name: MergeOverrides :execrows
INSERT INTO rate_limit_overrides AS o (rule_id, limit_name, subject, limit_text, reason, expires_at, created_by)
SELECT rule_id, limit_name, subject, limit_text, reason, expires_at, created_by
FROM jsonb_to_recordset(sqlc.arg(overrides)::jsonb) AS n (rule_id bigint, limit_name text, subject text, limit_text text, reason text,
    expires_at timestamptz, created_by text)
ON CONFLICT (rule_id, subject, limit_name) DO UPDATE SET limit_text = excluded.limit_text, reason = excluded.reason,
    expires_at = excluded.expires_at, created_by = excluded.created_by, updated_at = now(), removed_at = NULL
WHERE (o.limit_text, o.reason, o.expires_at, o.removed_at) IS DISTINCT FROM
    (excluded.limit_text, excluded.reason, excluded.expires_at, NULL::timestamptz);

-- name: CountExceptions :one
SELECT ((SELECT count(*) FROM rate_limit_overrides o JOIN rate_limit_rules r ON r.id = o.rule_id
        WHERE r.owner = sqlc.arg(tenant)::text AND o.removed_at IS NULL)
    + (SELECT count(*) FROM rate_limit_exemptions e JOIN rate_limit_rules r ON r.id = e.rule_id
        WHERE r.owner = sqlc.arg(tenant)::text AND e.removed_at IS NULL))::bigint AS exceptions;

-- name: SpendChanges :one
INSERT INTO rate_limit_tenant_changes AS c (tenant, drained_at)
VALUES (sqlc.arg(tenant)::text, now() + make_interval(secs => sqlc.arg(seconds)::double precision))
ON CONFLICT (tenant) DO UPDATE
    SET drained_at = greatest(c.drained_at, now()) + make_interval(secs => sqlc.arg(seconds)::double precision)
RETURNING extract(epoch FROM drained_at - now())::double precision AS pending_seconds;

-- name: ListAudit :many
SELECT a.id, a.object, a.action, coalesce((SELECT r.name FROM rate_limit_rules r WHERE r.id = a.rule_id), '')::text AS rule,
    a.old_row AS old, a.new_row AS new, coalesce(a.version, 0)::bigint AS version, a.actor, a.created_at
FROM rate_limit_rule_audit a
WHERE a.id < sqlc.arg(before)
  AND (sqlc.narg(rule)::bigint IS NULL OR a.rule_id = sqlc.narg(rule))
  AND (sqlc.narg(tenant)::text IS NULL OR a.tenant = sqlc.narg(tenant))
ORDER BY a.id DESC LIMIT sqlc.arg(max_rows);

-- name: Record :exec
INSERT INTO rate_limit_rule_audit (rule_id, object, action, new_row, tenant, actor) VALUES ($1, 'counter', 'update', $2, $3, $4);

-- name: AddToken :one
INSERT INTO rate_limit_tokens (name, sum, role, tenant, subject, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id;

-- name: TokenBySum :one
SELECT id, name, role, tenant, subject, created_by, created_at, expires_at, revoked_at FROM rate_limit_tokens
WHERE sum = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: ListTokens :many
SELECT id, name, role, tenant, subject, created_by, created_at, expires_at, revoked_at FROM rate_limit_tokens
WHERE id > sqlc.arg(after) ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: RevokeToken :execrows
UPDATE rate_limit_tokens SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL;

-- name: ReportNode :exec
INSERT INTO rate_limit_nodes (node, version, seq, problem, started_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (node) DO UPDATE SET version = excluded.version, seq = excluded.seq, problem = excluded.problem,
    started_at = excluded.started_at, seen_at = now();

-- name: ForgetNode :exec
DELETE FROM rate_limit_nodes WHERE node = $1;

-- name: ListNodes :many
SELECT n.node AS name, n.version, n.seq, n.problem, n.started_at,
    extract(epoch FROM now() - n.seen_at)::double precision AS age_seconds
FROM rate_limit_nodes n ORDER BY n.node;

-- name: EndOverrides :exec
UPDATE rate_limit_overrides SET removed_at = now() WHERE expires_at < sqlc.arg(before) AND removed_at IS NULL;

-- name: EndExemptions :exec
UPDATE rate_limit_exemptions SET removed_at = now() WHERE expires_at < sqlc.arg(before) AND removed_at IS NULL;

-- name: EnablePurge :exec
SELECT set_config('headgate.purge', 'on', true);

-- name: PurgeOverrides :one
WITH gone AS (DELETE FROM rate_limit_overrides WHERE removed_at < sqlc.arg(before) RETURNING seq)
SELECT coalesce(max(seq), 0)::bigint FROM gone;

-- name: PurgeExemptions :one
WITH gone AS (DELETE FROM rate_limit_exemptions WHERE removed_at < sqlc.arg(before) RETURNING seq)
SELECT coalesce(max(seq), 0)::bigint FROM gone;

-- name: PurgeChanges :exec
DELETE FROM rate_limit_changes WHERE created_at < sqlc.arg(before) AND seq < (SELECT seq FROM rate_limit_state);

-- name: PurgeNodes :exec
DELETE FROM rate_limit_nodes WHERE seen_at < sqlc.arg(before);

-- name: PurgeTenantChanges :exec
DELETE FROM rate_limit_tenant_changes WHERE drained_at < sqlc.arg(before);

-- name: SetPurged :exec
UPDATE rate_limit_state SET purged = greatest(purged, sqlc.arg(seq)::bigint);

-- name: AddUsage :exec
INSERT INTO usage_daily AS u (day, rule, subject, attributes, units, denied)
SELECT day, rule, subject, nullif(attributes, ''), units, denied
FROM jsonb_to_recordset(sqlc.arg(usage)::jsonb) AS n (day date, rule text, subject text, attributes text, units bigint, denied bigint)
ON CONFLICT (day, rule, subject) DO UPDATE SET units = u.units + excluded.units, denied = u.denied + excluded.denied,
    attributes = coalesce(u.attributes, excluded.attributes);

-- name: OwnersOf :many
SELECT name, owner FROM rate_limit_rules WHERE name = ANY(sqlc.arg(names)::text[]) AND owner <> '';

-- name: LockUsage :exec
SELECT pg_advisory_xact_lock(hashtext('usage_daily'), hashtext(t.tenant))
FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant ORDER BY 1) t;

-- name: KnownUsage :many
SELECT u.day::text AS day, u.rule, u.subject FROM usage_daily u
JOIN jsonb_to_recordset(sqlc.arg(usage)::jsonb) AS n (day date, rule text, subject text)
    ON n.day = u.day AND n.rule = u.rule AND n.subject = u.subject;

-- name: CountUsage :many
SELECT u.day::text AS day, r.owner, count(*) AS subjects FROM usage_daily u JOIN rate_limit_rules r ON r.name = u.rule
WHERE u.day = ANY(sqlc.arg(days)::text[]::date[]) AND r.owner = ANY(sqlc.arg(tenants)::text[]) AND u.subject <> 'others'
GROUP BY u.day, r.owner;

-- name: ListUsage :many
SELECT id, day::text AS day, rule, subject, coalesce(attributes, '')::text AS attributes, units, denied FROM usage_daily
WHERE id > sqlc.arg(after) AND day BETWEEN sqlc.arg(first)::text::date AND sqlc.arg(last)::text::date
  AND (sqlc.narg(rule)::text IS NULL OR rule = sqlc.narg(rule))
  AND (sqlc.narg(attributes)::text IS NULL OR attributes = sqlc.narg(attributes))
ORDER BY id LIMIT sqlc.arg(max_rows);
