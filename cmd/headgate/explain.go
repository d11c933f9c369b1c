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

// askTimeout is for a person who waits, not for a request.
const askTimeout = 5 * time.Second

// explainOptions are the flags.
type explainOptions struct {
	rules                                      []string
	redis, namespace, secretFile, passwordFile string
	server                                     adminclient.Options
	cost                                       int64
	all                                        bool
}

// explainReport is the report, as all commands have one.
type explainReport struct{ *explain.Report }

func (r explainReport) text() string { return r.Text() }

func newExplain(p *program) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain (--rules PATH | --server ADDRESS) [flags] [METHOD] [PATH] [name=value...]",
		Short: "Say whether a request would be denied now, by which rule, and why",
		Long: `Say whether a request would be denied now, by which rule, and why. Nothing is charged.

The request is what you know of it: a method, a path, and attributes as name=value. They are read as a server would; an
api_key is hashed and never shown.

With --rules the rules are read here, and Redis is asked from here. With --server, or the variable HEADGATE_SERVER, a
running server is asked at its listen.admin; it wants a token, which is in --token-file or in the variable HEADGATE_TOKEN.

Exit code: 0 it would pass; 1 it would be denied; 2 the rules, Redis or the server cannot be asked.`,
		Example: `  headgate explain --rules rules/ --redis redis://127.0.0.1:6379 POST /api/v1/login ip=203.0.113.7
  headgate explain --server http://127.0.0.1:8083 --token-file token POST /api/v1/login ip=203.0.113.7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(o.rules) == 0 && o.redis == "" {
				fromVariable(cmd, &o.server)
			}
			q, err := readQuestion(args)
			if err = cmp.Or(err, o.check()); err != nil {
				return usage(cmd, err)
			}
			ask := explainHere
			if o.server.Server != "" {
				ask = explainThere
			}
			r, err := ask(cmd.Context(), &o, q)
			if err != nil {
				return err
			}
			return p.end(explainReport{r}, verdict(r.Allowed))
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.rules, "rules", nil, "`PATH` of a rule file or a directory of them; may be repeated")
	flags.StringVar(&o.redis, "redis", "", "`ADDRESS` of Redis: redis://host:6379, sentinel://…/master, cluster://…")
	flags.StringVar(&o.namespace, "namespace", "", "`NAME` under which the servers count")
	flags.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the servers' secret for subjects, if they have one")
	flags.StringVar(&o.passwordFile, "redis-password-file", "", "`FILE` with the password of Redis")
	serverFlags(cmd, &o.server)
	flags.Int64Var(&o.cost, "cost", 1, "multiply what the rules say the request costs by `N`")
	flags.BoolVar(&o.all, "all", false, "show all rules that do not apply")
	return cmd
}

// check says which flags do not fit together, and completes addresses.
func (o *explainOptions) check() error {
	besideRedis := o.namespace != "" || o.passwordFile != "" || o.secretFile != ""
	besideServer := o.server.TokenFile != "" || o.server.CAFile != ""
	switch {
	case o.server.Server != "" && (len(o.rules) > 0 || o.redis != "" || besideRedis):
		return errors.New("a server has its own rules and Redis: give --server with --token-file and --ca-file only, or " +
			"--rules with --redis and what belongs to it")
	case o.server.Server == "" && besideServer:
		return errNoServer
	case o.server.Server == "" && len(o.rules) == 0:
		return errors.New("say where the rules are: --rules PATH; or which server to ask: give --server ADDRESS or set " +
			adminclient.ServerVariable)
	case o.cost < 1 || o.cost > headgate.MaxCost:
		return fmt.Errorf("--cost %d: write 1 to %d", o.cost, headgate.MaxCost)
	case o.redis == "" && besideRedis:
		return errors.New("say which Redis to ask: --redis ADDRESS")
	}
	o.redis = withScheme(o.redis, "redis://")
	return nil
}

// withScheme leaves an address alone that has one, or that is not given.
func withScheme(address, scheme string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return scheme + address
}

func (o *explainOptions) question(q *question) explain.Question {
	return explain.Question{Attributes: q.attributes, Cost: o.cost, All: o.all}
}

// explainHere asks the rules, and Redis if there is one.
func explainHere(ctx context.Context, o *explainOptions, q *question) (*explain.Report, error) {
	document, err := ruledoc.Load(o.rules...)
	if err != nil {
		return nil, err
	}
	secret, err := config.ReadSecret(o.secretFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
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
		return nil, fmt.Errorf("%s did not answer: %w", place.Redis, err)
	}
	q.compare(document)
	r := explain.New(&explanation, o.question(q), place, q.notes...)
	if o.redis == "" {
		r.Time = time.Time{} // no counters were asked
	}
	return r, nil
}

// explainThere asks a running server.
func explainThere(ctx context.Context, o *explainOptions, q *question) (*explain.Report, error) {
	c, err := connect(o.server, askTimeout)
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

// compare notes what is odd about the request in view of the rules.
func (q *question) compare(d *ruledoc.Document) {
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
