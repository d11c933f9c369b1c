// Package pgdb is the questions of queries.sql as Go functions, as sqlc has written them (make sql). It knows the tables' columns, and
// nothing of what they mean.
package pgdb
