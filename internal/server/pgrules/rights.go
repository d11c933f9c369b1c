package pgrules

import "context"

// Rights is what the user of the database may do.
type Rights struct {
	// Standby and ReadOnly are whether the server, or the session, rejects all changes.
	Standby, ReadOnly bool
	// Denied are the tables that the user may not read and change.
	Denied []string
}

// Rights returns what the user may do with the tables that exist. It changes nothing.
func (db *DB) Rights(ctx context.Context) (r Rights, err error) {
	err = db.pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, ARRAY(
		SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)
			AND (relname LIKE 'rate\_limit\_%' OR relname = 'usage_daily')
			AND NOT (has_table_privilege(oid, 'SELECT') AND (relname = $1 OR has_table_privilege(oid, 'INSERT')))
		ORDER BY relname)`, migrationsTable).Scan(&r.Standby, &r.ReadOnly, &r.Denied)
	return r, db.explain(err)
}
