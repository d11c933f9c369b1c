package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// postgresTimeout bounds all checks of PostgreSQL.
const postgresTimeout = 10 * time.Second

// CheckPostgres examines the database of the rules, and reports whether it has any.
func CheckPostgres(ctx context.Context, c *config.Config, configFile string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, postgresTimeout)
	defer cancel()
	finding := func(check string, status Status, detail, remedy string) Finding {
		return Finding{Section: SectionPostgres, Check: check, Status: status, Detail: detail, Remedy: remedy}
	}
	db, err := server.OpenPostgres(c) //nolint:contextcheck // it connects later
	if err != nil {
		return []Finding{finding("connection", Problem, redact.Text(err.Error()), "correct postgres in the config")}
	}
	defer db.Close()
	have, err := db.AppliedSchema(ctx)
	if errors.Is(err, pgrules.ErrReadOnly) { // the user may not even read
		if rights := checkRights(ctx, db, c); len(rights) > 0 {
			return rights
		}
	}
	if err != nil {
		return []Finding{finding("connection", Problem, redact.Text(err.Error())+". Nodes keep the rules that they have; one that starts now needs last_good_file",
			postgresRemedy(err))}
	}
	all := []Finding{finding("connection", OK, "connected to "+db.Address(), "")}
	migrate := shellwords.Command("headgate", "migrate", "--config", configFile)
	switch want := pgrules.SchemaVersion(); {
	case have == 0:
		return append(all, finding("schema", Problem, "there is no schema: the server cannot load rules", migrate))
	case have < want:
		return append(all, finding("schema", Problem, fmt.Sprintf("version %d, and this program needs %d", have, want), migrate))
	case have > want:
		all = append(all, finding("schema", Warning, fmt.Sprintf("version %d is newer than this program's %d: older servers keep working, but cannot use what is new", have, want), "upgrade this program"))
	default:
		all = append(all, finding("schema", OK, fmt.Sprintf("version %d", have), ""))
	}
	if rights := checkRights(ctx, db, c); len(rights) > 0 {
		return append(all, rights...)
	}
	version, _, _, err := db.CurrentState(ctx)
	switch {
	case err != nil:
		all = append(all, finding("rules", Problem, redact.Text(err.Error()), "give the user of postgres.address access to the tables"))
	case version == 0:
		all = append(all, finding("rules", Warning, "none are published: servers are not ready", "headgate rules apply FILE"))
	default:
		all = append(all, finding("rules", OK, fmt.Sprintf("version %d", version), ""))
	}
	return all
}
