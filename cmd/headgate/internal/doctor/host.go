package doctor

import (
	"fmt"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/wording"
)

// otherFiles is the number of open files that are not connections of listeners.
const otherFiles = 500

// CheckHost examines the limits of this process, which a server that is started the same way gets, too.
func CheckHost(c *config.Config) []Finding {
	limit, ok := openFilesLimit()
	if !ok {
		return nil
	}
	return checkOpenFiles(c, limit)
}

func checkOpenFiles(c *config.Config, limit uint64) []Finding {
	need := uint64(otherFiles)
	for _, address := range []string{c.Listen.HTTP, c.Listen.GRPC} {
		if address != "" {
			need += listen.MaxConnections
		}
	}
	f := Finding{Section: SectionHost, Check: "open files", Status: OK, Detail: "up to " + wording.Number(int64(min(limit, 1<<62)))}
	if limit < need {
		f.Status = Warning
		f.Detail = fmt.Sprintf("up to %s in this session, and a server accepts up to %s connections: it rejects connections before that",
			wording.Number(int64(limit)), wording.Number(int64(need-otherFiles)))
		f.Remedy = "LimitNOFILE=65536 in the systemd unit, or ulimit -n 65536"
	}
	return []Finding{f}
}
