package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
)

// explainTimeout bounds a call on behalf of a waiting user. It is longer than the timeout of a live request.
const explainTimeout = 5 * time.Second

// explainOptions holds the flags of explain.
type explainOptions struct {
	rules                                      []string
	redis, namespace, secretFile, passwordFile string
	server                                     adminclient.Options
	cost                                       int64
	all                                        bool
}

// explainReport makes explain.Report a report.
type explainReport struct{ *explain.Report }

func (r explainReport) text() string { return r.Text() }

func newExplain(p *program) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain (--rules PATH | --server ADDRESS) [flags] [METHOD] [PATH] [name=value...]",
		Short: "Explain whether a request would be allowed now, and which rule decides",
		Long: `Explain whether a request would be allowed now, and which rule decides. Nothing is charged.

Describe the request by a method, a path, and attributes as name=value. They are normalized as a server does; an api_key
is hashed and never shown.

With --rules, headgate reads the rule files locally and the counters from --redis. With --server or $HEADGATE_SERVER, it
queries the admin API of a running server (listen.admin) with the token in --token-file or $HEADGATE_TOKEN.

Exit codes:
  0  the request would be allowed
  1  the request would be denied
  2  the rules, Redis or the server cannot be read`,
		Example: `  headgate explain --rules rules/ --redis redis://127.0.0.1:6379 POST /api/v1/login ip=203.0.113.7
  headgate explain --server http://127.0.0.1:8083 --token-file token POST /api/v1/login ip=203.0.113.7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(o.rules) == 0 && o.redis == "" {
				serverFromEnv(cmd, &o.server)
			}
			q, err := parseRequest(args)
			if err = cmp.Or(err, o.check()); err != nil {
				return usage(cmd, err)
			}
			run := explainLocal
			if o.server.Server != "" {
				run = explainRemote
			}
			r, err := run(cmd.Context(), &o, q)
			if err != nil {
				return err
			}
			return p.finish(explainReport{r}, failUnless(r.Allowed))
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.rules, "rules", nil, "`PATH` of a rule file or directory (repeatable)")
	flags.StringVar(&o.redis, "redis", "", "`ADDRESS` of Redis: redis://host:6379, sentinel://…/master or cluster://…")
	flags.StringVar(&o.namespace, "redis-namespace", "", "`NAME` of the namespace in Redis, as in the servers' config")
	flags.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the servers' secret for hashing subjects (secret_file)")
	flags.StringVar(&o.passwordFile, "redis-password-file", "", "`FILE` with the Redis password")
	serverFlags(cmd, &o.server)
	flags.Int64Var(&o.cost, "cost", 1, "multiply the cost that each rule computes by `N`")
	flags.BoolVar(&o.all, "all", false, "list all rules that do not apply")
	return cmd
}

// check rejects conflicting flags, and adds the scheme to the Redis address.
func (o *explainOptions) check() error {
	redisFlags := o.namespace != "" || o.passwordFile != "" || o.secretFile != ""
	clientFlags := o.server != (adminclient.Options{Server: o.server.Server})
	switch {
	case o.server.Server != "" && (len(o.rules) > 0 || o.redis != "" || redisFlags):
		return errors.New("--server cannot be combined with --rules and Redis flags: use --server with --token-file and --ca-file, or " +
			"--rules with the Redis flags")
	case o.server.Server == "" && clientFlags:
		return errNoServer
	case o.server.Server == "" && len(o.rules) == 0:
		return errors.New("no rules given: use --rules PATH, use --server ADDRESS or set " + adminclient.ServerVariable)
	case o.cost < 1 || o.cost > headgate.MaxCost:
		return fmt.Errorf("--cost %d: must be 1 to %d", o.cost, headgate.MaxCost)
	case o.redis == "" && redisFlags:
		return errors.New("no Redis given: use --redis ADDRESS")
	}
	o.redis = withScheme(o.redis, "redis://")
	return nil
}

// withScheme adds the scheme to an address that has none. It does not change an empty address.
func withScheme(address, scheme string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return scheme + address
}

func (o *explainOptions) question(q *typedRequest) explain.Question {
	return explain.Question{Attributes: q.attributes, Cost: o.cost, All: o.all}
}

// explainLocal evaluates the rules locally, with the counters in Redis if --redis is given.
func explainLocal(ctx context.Context, o *explainOptions, q *typedRequest) (*explain.Report, error) {
	document, err := ruledoc.Load(o.rules...)
	if err != nil {
		return nil, err
	}
	secret, err := config.ReadSecret(o.secretFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var store headgate.Store = memstore.New(memstore.Options{})
	place := explain.Place{RulesFrom: o.rules}
	if o.redis != "" {
		redis, err := openRedis(ctx, o)
		if err != nil {
			return nil, err
		}
		defer redis.Close()
		store, place.Redis, place.Key = redis, redact.Address(o.redis), redis.Key
	}
	limiter := headgate.NewLimiter(store, document.Rules, headgate.Options{Secret: secret})
	if err := document.Apply(limiter); err != nil {
		return nil, err
	}
	explanation, err := limiter.Explain(ctx, headgate.Request{Attributes: q.attributes, Cost: o.cost})
	if err != nil {
		return nil, fmt.Errorf("%s: read counters: %w", place.Redis, err)
	}
	q.compare(document)
	r := explain.New(&explanation, o.question(q), place, q.notes...)
	if o.redis == "" {
		r.Time = time.Time{} // no counters were read
	}
	return r, nil
}

// explainRemote queries a running server.
func explainRemote(ctx context.Context, o *explainOptions, q *typedRequest) (*explain.Report, error) {
	c, err := connect(o.server, explainTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := c.Explain(ctx, o.question(q))
	if err != nil {
		return nil, err
	}
	r.Server, r.Notes = c.Server, slices.Concat(q.notes, r.Notes)
	return r, nil
}

// compare adds a note about attributes of the request that no rule uses.
func (q *typedRequest) compare(d *ruledoc.Document) {
	var exempt []string
	for _, x := range d.Exemptions {
		exempt = append(exempt, x.Attribute)
	}
	if idle := explain.UnusedAttributes(q.names, d.Rules, exempt...); idle != "" {
		q.note("%s", idle)
	}
}

func openRedis(ctx context.Context, o *explainOptions) (*redisstore.Store, error) {
	password, err := config.ReadSecret(o.passwordFile)
	if err != nil {
		return nil, err
	}
	options := redisstore.Options{Address: o.redis, Namespace: o.namespace, Password: string(password)}
	store, err := redisstore.New(options) //nolint:contextcheck // the store outlives the call that opens it
	if err != nil {
		return nil, err
	}
	if err := store.Ready(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}
