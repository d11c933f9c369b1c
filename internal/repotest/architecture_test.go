package repotest

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "github.com/headgate/headgate"

// arrows lists what one package may import in addition to the standard library and the root package: packages of this module by
// directory, all others by module.
type arrows struct {
	code    []string
	tests   []string // for _test.go files, in addition to code
	notRoot bool     // not even the root package
}

// architecture has an entry for every package, keyed by its directory. Add an import here in the commit that needs it.
var architecture = map[string]arrows{
	".": {
		code:  []string{"internal/pathreading", "internal/wallclock"},
		tests: []string{"memstore", "storewrap"},
	},
	"client": {
		code: []string{
			"internal/protofields", "proto/headgate/check/v1", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
		tests: []string{
			"grpclimit", "httplimit", "internal/server/check", "internal/server/checkgrpc", "internal/testenv", "memstore", "go.uber.org/goleak",
		},
	},
	"grpclimit": {
		code: []string{
			"identity", "internal/delay", "internal/limitfields", "internal/ratelog", "streamlimit",
			"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
		tests: []string{"memstore", "go.uber.org/goleak"},
	},
	"httplimit": {
		code:  []string{"identity", "internal/delay", "internal/limitfields", "internal/ratelimitdraft", "internal/ratelog"},
		tests: []string{"memstore", "github.com/dunglas/httpsfv", "go.uber.org/goleak"},
	},
	"identity": {
		code: []string{
			"internal/netaddr", "internal/pathreading", "internal/ratelog", "internal/redact",
			"github.com/MicahParks/keyfunc/v3", "github.com/golang-jwt/jwt/v5",
		},
		tests: []string{"memstore"},
	},
	"llmcost": {
		code: []string{"internal/yamldoc"},
	},
	"memstore": {
		code:  []string{"internal/holdtable", "internal/wallclock"},
		tests: []string{"internal/testenv", "storetest"},
	},
	"redisstore": {
		code:  []string{"internal/redact", "internal/redisclient", "github.com/redis/rueidis"},
		tests: []string{"internal/testenv", "storetest", "github.com/anishathalye/porcupine", "go.uber.org/goleak"},
	},
	// For clients of APIs, which need no limiter.
	"retryafter": {
		code:    []string{"internal/ratelimitdraft"},
		tests:   []string{"go.uber.org/goleak"},
		notRoot: true,
	},
	"ruledoc": {
		code: []string{
			"internal/yamldoc",
			"memstore", // rule tests count with it
			"cel.dev/cel-go",
		},
		tests: []string{"github.com/goccy/go-yaml", "github.com/santhosh-tekuri/jsonschema/v6", "go.uber.org/goleak"},
	},
	"storetest": {},
	"storewrap": {
		code:  []string{"internal/holdtable"},
		tests: []string{"internal/testenv", "memstore", "redisstore", "storetest", "go.uber.org/goleak"},
	},
	// For any WebSocket library: it imports none.
	"streamlimit": {
		code:  []string{"internal/limitfields", "internal/ratelog"},
		tests: []string{"memstore"},
	},
	"deploy/compose/api": {notRoot: true},
	"examples":           {notRoot: true},
	"examples/library": {
		code:  []string{"httplimit", "identity", "redisstore", "ruledoc", "storewrap"},
		tests: []string{"internal/testenv"},
	},
	"examples/llm": {
		code:  []string{"client", "identity", "llmcost", "redisstore", "ruledoc", "storewrap"},
		tests: []string{"internal/testenv"},
	},
	"examples/llm/model": {notRoot: true},
	"cmd/headgate": {
		code: []string{
			"cmd/headgate/internal/doctor", "cmd/headgate/internal/envoyconfig", "cmd/headgate/internal/shellwords", "examples", "identity",
			"internal/redact", "internal/server",
			"internal/server/adminapi", "internal/server/adminclient", "internal/server/config", "internal/server/denials",
			"internal/server/explain", "internal/server/offenders", "internal/server/rulediff", "internal/server/tracing",
			"internal/server/wording", "internal/yamldoc", "memstore", "redisstore", "ruledoc",
			"github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/spf13/cobra", "github.com/spf13/pflag", "go.yaml.in/yaml/v3",
			"golang.org/x/term",
		},
		tests: []string{
			"client", "internal/console", "internal/redisclient", "internal/server/fanout", "internal/server/pgrules", "internal/testenv", "proto/headgate/check/v1",
			"github.com/prometheus/client_golang", "go.uber.org/goleak", "golang.org/x/net", "google.golang.org/grpc",
			"google.golang.org/protobuf",
		},
	},
	"cmd/headgate/internal/doctor": {
		code: []string{
			"cmd/headgate/internal/shellwords", "internal/netaddr", "internal/redact", "internal/redisclient", "internal/region", "internal/regiongrpc",
			"internal/server",
			"internal/server/adminapi", "internal/server/config", "internal/server/listen", "internal/server/pgrules",
			"internal/server/wording", "redisstore", "github.com/jackc/pgx/v5", "github.com/redis/rueidis",
		},
		tests: []string{"internal/testenv"},
	},
	"cmd/headgate/internal/envoyconfig": {
		code:  []string{"internal/yamldoc", "ruledoc"},
		tests: []string{"memstore"},
	},
	"cmd/headgate/internal/shellwords": {},
	"proto/headgate/check/v1": {
		code:    []string{"google.golang.org/grpc", "google.golang.org/protobuf"},
		tests:   []string{"internal/prototest"},
		notRoot: true,
	},
	"proto/headgate/region/v1": {
		code:    []string{"google.golang.org/grpc", "google.golang.org/protobuf"},
		tests:   []string{"internal/prototest"},
		notRoot: true,
	},
	// Used by tests that follow the documentation.
	"internal/console": {notRoot: true},
	"internal/charttest": {
		tests:   []string{"internal/server/config", "internal/testenv", "github.com/goccy/go-yaml"},
		notRoot: true,
	},
	"internal/delay": {},
	"internal/e2e": {
		tests:   []string{"internal/server/adminapi", "internal/testenv", "github.com/goccy/go-yaml"},
		notRoot: true,
	},
	"internal/holdtable": {},
	"internal/limitfields": {
		code: []string{"internal/ratelimitdraft", "internal/ratelog"},
	},
	"internal/netaddr":     {notRoot: true},
	"internal/pathreading": {notRoot: true},
	"internal/protofields": {
		code:    []string{"google.golang.org/protobuf"},
		notRoot: true,
	},
	"internal/prototest": {
		code:    []string{"github.com/bufbuild/protocompile", "google.golang.org/grpc", "google.golang.org/protobuf"},
		notRoot: true,
	},
	"internal/ratelimitdraft": {notRoot: true},
	"internal/ratelog":        {notRoot: true},
	// Used by all packages that print addresses.
	"internal/redact": {notRoot: true},
	"internal/redisclient": {
		code:    []string{"internal/redact", "github.com/redis/rueidis"},
		notRoot: true,
	},
	"internal/region": {
		tests: []string{"memstore", "storewrap"},
	},
	"internal/regiongrpc": {
		code: []string{
			"internal/netaddr", "internal/ratelog", "internal/region", "proto/headgate/region/v1", "google.golang.org/grpc",
			"google.golang.org/protobuf",
		},
		tests: []string{"internal/testenv", "go.uber.org/goleak"},
	},
	"internal/repotest": {
		// The README's Go code uses all of them.
		tests: []string{
			"client", "grpclimit", "httplimit", "identity", "internal/testenv", "redisstore", "retryafter", "ruledoc",
			"storewrap", "google.golang.org/grpc",
		},
	},
	// Tests of any package use it, so it must not import any of them.
	"internal/testenv": {
		tests:   []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn"},
		notRoot: true,
	},
	"internal/wallclock": {notRoot: true},
	"internal/yamldoc": {
		code:    []string{"github.com/goccy/go-yaml"},
		notRoot: true,
	},
	"internal/server": {
		code: []string{
			"identity", "internal/netaddr", "internal/redact", "internal/redisclient", "internal/region", "internal/regiongrpc", "internal/server/adminapi", "internal/server/callers",
			"internal/server/check", "internal/server/checkgrpc", "internal/server/checkhttp", "internal/server/config",
			"internal/server/denials", "internal/server/envoyrls", "internal/server/explain", "internal/server/fanout", "internal/server/listen",
			"internal/server/meter", "internal/server/offenders", "internal/server/pgrules", "internal/server/telemetry",
			"internal/server/tracing", "internal/server/wording", "memstore", "proto/headgate/check/v1", "redisstore", "ruledoc", "storewrap",
			"google.golang.org/grpc",
		},
		tests: []string{"internal/testenv", "github.com/envoyproxy/go-control-plane/envoy"},
	},
	"internal/server/adminapi": {
		code: []string{
			"identity", "internal/netaddr", "internal/ratelog", "internal/region", "internal/server/check", "internal/server/denials",
			"internal/server/explain", "internal/server/fanout", "internal/server/offenders", "internal/server/pgrules",
			"internal/server/rulediff",
			"memstore", // limits callers and guesses of tokens
			"ruledoc",
		},
		tests: []string{
			"internal/server/meter", "internal/testenv", "redisstore", "github.com/getkin/kin-openapi",
			"github.com/golang-jwt/jwt/v5",
		},
	},
	"internal/server/adminclient": {
		code: []string{
			"internal/netaddr", "internal/server/adminapi", "internal/server/config", "internal/server/denials",
			"internal/server/explain", "internal/server/offenders", "internal/server/rulediff", "ruledoc",
		},
	},
	"internal/server/callers": {
		code: []string{"internal/netaddr", "internal/ratelog", "internal/server/check", "google.golang.org/grpc"},
	},
	"internal/server/check": {
		code:  []string{"identity", "internal/limitfields", "internal/ratelog", "google.golang.org/grpc"},
		tests: []string{"memstore"},
	},
	"internal/server/checkgrpc": {
		code: []string{
			"identity", "internal/limitfields", "internal/protofields", "internal/ratelog", "internal/server/check",
			"internal/server/tracing", "proto/headgate/check/v1", "golang.org/x/sync", "google.golang.org/grpc",
			"google.golang.org/protobuf",
		},
		tests: []string{"memstore", "go.uber.org/goleak"},
	},
	"internal/server/checkhttp": {
		code: []string{
			"httplimit", "identity", "internal/limitfields", "internal/ratelog", "internal/server/check",
			"internal/server/tracing",
		},
		tests: []string{"memstore", "github.com/getkin/kin-openapi", "go.uber.org/goleak"},
	},
	"internal/server/config": {
		code: []string{
			"identity", "internal/limitfields", "internal/netaddr", "internal/ratelimitdraft", "internal/redact", "internal/region",
			"internal/server/pgrules", "internal/yamldoc", "memstore", "redisstore", "storewrap",
		},
	},
	"internal/server/denials": {
		code:  []string{"internal/ratelog", "internal/server/fanout", "golang.org/x/time"},
		tests: []string{"internal/testenv", "memstore"},
	},
	"internal/server/envoyrls": {
		code: []string{
			"identity", "internal/limitfields", "internal/protofields", "internal/ratelog", "internal/server/check",
			"google.golang.org/grpc", "google.golang.org/protobuf",
		},
		tests: []string{"internal/server/checkgrpc", "memstore", "github.com/envoyproxy/go-control-plane/envoy"},
	},
	"internal/server/explain": {
		code: []string{"internal/server/wording"},
	},
	"internal/server/fanout": {
		code:    []string{"golang.org/x/time"},
		tests:   []string{"internal/testenv", "redisstore", "go.uber.org/goleak"},
		notRoot: true,
	},
	"internal/server/listen": {
		code:    []string{"internal/netaddr", "internal/ratelog", "google.golang.org/grpc"},
		tests:   []string{"internal/testenv", "go.uber.org/goleak"},
		notRoot: true,
	},
	"internal/server/meter": {
		tests: []string{"memstore"},
	},
	"internal/server/offenders": {
		code:  []string{"internal/server/fanout"},
		tests: []string{"internal/testenv", "memstore"},
	},
	"internal/server/pgrules": {
		code: []string{
			"internal/redact", "internal/server/meter", "internal/server/pgrules/pgdb", "memstore", // simulates rules before they are published
			"ruledoc",
			"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool",
			"github.com/jackc/pgx/v5/stdlib", "github.com/pressly/goose/v3", "github.com/pressly/goose/v3/lock",
		},
		tests: []string{"internal/testenv"},
	},
	// Generated from internal/server/pgrules/queries.sql.
	"internal/server/pgrules/pgdb": {
		code:    []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgtype"},
		notRoot: true,
	},
	"internal/server/rulediff": {
		code: []string{"internal/server/wording", "ruledoc"},
	},
	"internal/server/telemetry": {
		code: []string{
			"internal/region", "internal/regiongrpc", "ruledoc", "storewrap", "github.com/prometheus/client_golang", "github.com/prometheus/client_model",
			"google.golang.org/grpc",
		},
		tests: []string{"memstore"},
	},
	"internal/server/tracing": {
		code: []string{
			"internal/ratelog", "go.opentelemetry.io/otel",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "go.opentelemetry.io/otel/sdk",
			"go.opentelemetry.io/otel/trace", "golang.org/x/time", "google.golang.org/grpc",
		},
		tests: []string{
			"client", "internal/server/checkgrpc", "internal/server/checkhttp", "internal/server/envoyrls",
			"internal/server/listen", "internal/testenv", "memstore", "proto/headgate/check/v1",
			"github.com/envoyproxy/go-control-plane/envoy", "go.opentelemetry.io/proto/otlp", "go.uber.org/goleak",
			"google.golang.org/protobuf",
		},
	},
	"internal/server/wording": {},
	"tools/quickstart": {
		code:    []string{"internal/console"},
		notRoot: true,
	},
}

// serverLayer is the directory of the packages that only the server uses. The public packages and the other packages in internal/ must
// not import it, whatever the table contains. Their tests may, because they use real servers.
const serverLayer = "internal/server/"

// minCommentWords is the length that a package comment must exceed to say what the package knows and what it does not.
const minCommentWords = 12

func TestArchitecture(t *testing.T) {
	t.Parallel()
	problems, err := checkArchitecture(os.DirFS("../.."), architecture)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// checkArchitecture compares the packages under tree with the table and returns a message for each difference.
func checkArchitecture(tree fs.FS, table map[string]arrows) ([]string, error) {
	packages, err := readPackages(tree)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		allowed, known := table[dir]
		if !known {
			problems = append(problems, dir+": package is not in the table")
			continue
		}
		problems = append(problems, packages[dir].checkImports(allowed)...)
		problems = append(problems, packages[dir].checkComment()...)
	}
	for _, dir := range slices.Sorted(maps.Keys(table)) {
		if packages[dir] == nil {
			problems = append(problems, dir+": entry without a package")
		}
	}
	return problems, nil
}

// goPackage describes the Go files of one directory.
type goPackage struct {
	dir      string
	imports  []goImport
	comments []goComment
}

type goImport struct {
	file, path string
	test       bool
}

type goComment struct{ file, text string }

// readPackages parses every Go file of this module under tree, keyed by directory. Like the go command, it skips hidden directories,
// testdata and nested modules. It ignores build constraints, so that imports for other platforms count, too.
func readPackages(tree fs.FS) (map[string]*goPackage, error) {
	packages := map[string]*goPackage{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skipForeign(tree, name)
		case path.Ext(name) != ".go":
			return nil
		}
		dir := path.Dir(name)
		if packages[dir] == nil {
			packages[dir] = &goPackage{dir: dir}
		}
		return packages[dir].readFile(tree, name)
	})
	return packages, err
}

// skipForeign returns fs.SkipDir for a directory that does not belong to the module.
func skipForeign(tree fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	switch _, err := fs.Stat(tree, path.Join(dir, "go.mod")); {
	case err == nil:
		return fs.SkipDir
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

func (p *goPackage) readFile(tree fs.FS, name string) error {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(name, "_test.go")
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		p.imports = append(p.imports, goImport{file: name, path: imported, test: test})
	}
	// go doc does not show the comments of test files.
	if text := file.Doc.Text(); text != "" && !test {
		p.comments = append(p.comments, goComment{file: name, text: text})
	}
	return nil
}

func (p *goPackage) checkImports(allowed arrows) []string {
	var problems []string
	for _, imp := range p.imports {
		if own, ok := ownPackage(imp.path); ok && ofServer(own) && !imp.test && !p.aboveServer() {
			problems = append(problems, fmt.Sprintf("%s: import of %q: only the server and commands may import %s", imp.file, imp.path, serverLayer))
			continue
		}
		list := allowed.code
		if imp.test {
			list = slices.Concat(allowed.code, allowed.tests)
		}
		if !p.mayImport(imp, list, allowed.notRoot) {
			problems = append(problems, fmt.Sprintf("%s: import of %q is not in the table", imp.file, imp.path))
		}
	}
	return problems
}

func (p *goPackage) mayImport(imp goImport, list []string, notRoot bool) bool {
	own, ok := ownPackage(imp.path)
	switch {
	case ok && own == p.dir:
		return imp.test // from the package's external tests
	case ok && own == ".":
		return !notRoot
	case ok:
		return slices.Contains(list, own)
	case isStandard(imp.path):
		return true
	}
	return slices.ContainsFunc(list, func(module string) bool {
		return imp.path == module || strings.HasPrefix(imp.path, module+"/")
	})
}

// aboveServer reports whether the package may import the server's packages: it is one of them, or a command.
func (p *goPackage) aboveServer() bool {
	return ofServer(p.dir) || strings.HasPrefix(p.dir, "cmd/")
}

func ofServer(dir string) bool { return strings.HasPrefix(dir+"/", serverLayer) }

// ownPackage returns the directory of an import path of this module.
func ownPackage(importPath string) (dir string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// isStandard reports whether an import path is of the standard library. As in the go command, the first element of others has a dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func (p *goPackage) checkComment() []string {
	switch len(p.comments) {
	case 0:
		return []string{p.dir + ": no package comment"}
	case 1:
		comment := p.comments[0]
		if words := len(strings.Fields(comment.text)); words <= minCommentWords {
			return []string{fmt.Sprintf("%s: package comment of %d words, want more than %d", comment.file, words, minCommentWords)}
		}
		return nil
	}
	var files []string
	for _, comment := range p.comments {
		files = append(files, comment.file)
	}
	return []string{p.dir + ": package comment in several places: " + strings.Join(files, ", ")}
}

func TestCheckArchitecture(t *testing.T) {
	t.Parallel()
	const comment = "// Package p knows a good many things that take more than a dozen words to describe.\n"
	table := map[string]arrows{
		".":                    {tests: []string{"store", "example.com/check"}},
		"store":                {code: []string{"example.com/driver", "internal/server/api"}},
		"servers":              {notRoot: true},
		"internal/words":       {code: []string{"internal/server/api"}},
		"internal/server/api":  {code: []string{"internal/server/conf"}},
		"internal/server/conf": {},
		"cmd/serve":            {code: []string{"internal/server/api"}},
	}
	// valid is a tree that matches the table. Each case changes some of its files.
	valid := map[string]string{
		"go.mod":             "module " + modulePath,
		"root.go":            comment + `package p; import "context"`,
		"root_test.go":       `package p_test; import ("testing"; "example.com/check"; "` + modulePath + `"; "` + modulePath + `/store")`,
		"store/doc.go":       comment + `package p`,
		"store/store.go":     `package p; import ("example.com/driver/v2"; "` + modulePath + `")`,
		"servers/servers.go": comment + `package p; import "os/exec"`,

		"internal/words/words.go":      comment + `package p`,
		"internal/words/words_test.go": `package p; import "` + modulePath + `/internal/server/api"`,
		"internal/server/api/api.go":   comment + `package p; import "` + modulePath + `/internal/server/conf"`,
		"internal/server/conf/conf.go": comment + `package p`,
		"cmd/serve/main.go":            comment + `package p; import "` + modulePath + `/internal/server/api"`,

		"bench/go.mod":        "module bench",
		"bench/bench.go":      `package p; import "example.com/rival"`,
		"store/testdata/x.go": `package p; import "example.com/rival"`,
		".bin/x.go":           `package p; import "example.com/rival"`,
		"_old/x.go":           `package p; import "example.com/rival"`,
		"docs/README.md":      "no Go here",
	}
	tests := map[string]struct {
		change map[string]string // empty text removes a file
		want   []string
	}{
		"valid": {},
		"forbidden arrow": {
			change: map[string]string{"root.go": comment + `package p; import "` + modulePath + `/store"`},
			want:   []string{`root.go: import of "` + modulePath + `/store" is not in the table`},
		},
		"forbidden arrow of a test": {
			change: map[string]string{"store/store_test.go": `package p; import "` + modulePath + `/servers"`},
			want:   []string{`store/store_test.go: import of "` + modulePath + `/servers" is not in the table`},
		},
		"arrow to the root where none may be": {
			change: map[string]string{"servers/servers_test.go": `package p; import "` + modulePath + `"`},
			want:   []string{`servers/servers_test.go: import of "` + modulePath + `" is not in the table`},
		},
		"server imported by a public package": {
			change: map[string]string{"store/store.go": `package p; import "` + modulePath + `/internal/server/api"`},
			want:   []string{`store/store.go: import of "` + modulePath + `/internal/server/api": only the server and commands may import internal/server/`},
		},
		"server imported by the lower layer": {
			change: map[string]string{"internal/words/words.go": comment + `package p; import "` + modulePath + `/internal/server/api"`},
			want:   []string{`internal/words/words.go: import of "` + modulePath + `/internal/server/api": only the server and commands may import internal/server/`},
		},
		"forbidden module": {
			change: map[string]string{"store/store.go": `package p; import "example.com/driverless"`},
			want:   []string{`store/store.go: import of "example.com/driverless" is not in the table`},
		},
		"module for tests only": {
			change: map[string]string{"root.go": comment + `package p; import "example.com/check"`},
			want:   []string{`root.go: import of "example.com/check" is not in the table`},
		},
		"other platform": {
			change: map[string]string{"store/store_plan9.go": `package p; import "example.com/rival"`},
			want:   []string{`store/store_plan9.go: import of "example.com/rival" is not in the table`},
		},
		"unknown package": {
			change: map[string]string{"store/deep/deep.go": comment + `package p`},
			want:   []string{"store/deep: package is not in the table"},
		},
		"entry without a package": {
			change: map[string]string{"servers/servers.go": "", "servers/README.md": "gone"},
			want:   []string{"servers: entry without a package"},
		},
		"no package comment": {
			change: map[string]string{"store/doc.go": `package p`, "store/store_test.go": comment + `package p`},
			want:   []string{"store: no package comment"},
		},
		"comment is only a directive": {
			change: map[string]string{"store/doc.go": "//go:generate true\npackage p"},
			want:   []string{"store: no package comment"},
		},
		"terse package comment": {
			change: map[string]string{"store/doc.go": "// Package p has exactly twelve words, which is one less than enough.\npackage p"},
			want:   []string{"store/doc.go: package comment of 12 words, want more than 12"},
		},
		"two package comments": {
			change: map[string]string{"store/more.go": comment + `package p`},
			want:   []string{"store: package comment in several places: store/doc.go, store/more.go"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := maps.Clone(valid)
			maps.Copy(files, test.change)
			tree := fstest.MapFS{}
			for name, content := range files {
				if content != "" {
					tree[name] = &fstest.MapFile{Data: []byte(content)}
				}
			}
			got, err := checkArchitecture(tree, table)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
