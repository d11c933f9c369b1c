package adminapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

const (
	// tokenPrefix makes tokens recognizable to people and to secret scanners.
	tokenPrefix = "hgt_"
	// reloadInterval is how soon a change of the file is noticed.
	reloadInterval = time.Second
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// NewToken returns a new token, and its line for a token file. rights are the words that follow the name in the line: the role,
// the tenant and the subject.
func NewToken(name string, rights ...string) (token, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(token))
	words := append([]string{hex.EncodeToString(sum[:]), name}, rights...)
	if !tokenName.MatchString(name) {
		return "", "", errors.New("invalid token name: must be 1 to 64 letters, digits and . _ @ -, and begin with a letter or digit")
	}
	if _, _, err := parseToken(words); err != nil {
		return "", "", err
	}
	return token, strings.Join(words, " "), nil
}

// Tokens is an Authority with the tokens of a file. It is safe for concurrent use.
type Tokens struct {
	file string
	log  *slog.Logger

	known atomic.Pointer[knownTokens]
	read  atomic.Int64 // time of the last read, in Unix nanoseconds

	mu      sync.Mutex // held while the file is read
	text    []byte     // the content that known was parsed from
	problem string     // the error of the last read, as logged
}

// knownTokens are the callers of a file, by the SHA-256 of their token. The tokens themselves are not in the file.
type knownTokens map[[sha256.Size]byte]Caller

// ReadTokens reads a file with a line for each token: the SHA-256 of the token in 64 hexadecimal digits, a name, a role (default
// viewer), tenant=NAME for a caller bound to a tenant, and user=NAME or api_key=HASH for a caller with the role self. Empty lines and
// lines that begin with # are ignored. The file is read again within a second of a change. If it is invalid then, the current tokens
// stay in use and the error is logged.
func ReadTokens(file string, log *slog.Logger) (*Tokens, error) {
	if log == nil {
		log = slog.Default()
	}
	t := &Tokens{file: file, log: log}
	t.read.Store(time.Now().UnixNano())
	if err := t.load(); err != nil {
		return nil, err
	}
	if len(*t.known.Load()) == 0 {
		log.Warn("token file has no tokens; all calls are rejected", "file", file)
	}
	return t, nil
}

// Caller returns the caller whose line has the token's hash.
func (t *Tokens) Caller(_ context.Context, token string) (Caller, error) {
	now, read := time.Now().UnixNano(), t.read.Load()
	if now-read >= int64(reloadInterval) && t.read.CompareAndSwap(read, now) {
		t.reload()
	}
	caller, ok := (*t.known.Load())[sha256.Sum256([]byte(token))]
	if !ok {
		return Caller{}, errUnknownToken
	}
	return caller, nil
}

// Has reports whether the file has a token with this role.
func (t *Tokens) Has(role Role) bool {
	for _, caller := range *t.known.Load() {
		if caller.Role == role {
			return true
		}
	}
	return false
}

// reload reads the file again and logs changes.
func (t *Tokens) reload() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.text
	switch err := t.load(); {
	case err == nil && (t.problem != "" || !bytes.Equal(before, t.text)):
		t.problem = ""
		t.log.Info("token file reloaded", "file", t.file, "tokens", len(*t.known.Load()))
	case err != nil && t.problem != err.Error():
		t.problem = err.Error()
		t.log.Error("token file invalid; the current tokens stay in use", "error", t.problem)
	}
}

// load reads the file and replaces the tokens if it is valid.
func (t *Tokens) load() error {
	text, err := os.ReadFile(t.file) //nolint:gosec // the file name is from the config
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	if t.text != nil && bytes.Equal(text, t.text) {
		return nil
	}
	known, err := parseTokens(t.file, string(text))
	if err != nil {
		return err
	}
	t.known.Store(&known)
	t.text = text
	return nil
}

// parseTokens parses a token file. Its errors do not quote the line, which might contain a token.
func parseTokens(file, text string) (knownTokens, error) {
	known := knownTokens{}
	var problems []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		sum, caller, err := parseToken(words)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", file, number, err))
		}
		known[sum] = caller
	}
	return known, errors.Join(problems...)
}

var errRights = errors.New("invalid rights: after the name write a role (caller, self, viewer, editor or admin), tenant=NAME for a token of " +
	"one tenant, user=NAME or api_key=HASH for the role self, and nothing else")

// parseToken parses the words of a line: the token's hash, its name and its rights.
func parseToken(words []string) (sum [sha256.Size]byte, caller Caller, err error) {
	digest, err := hex.DecodeString(words[0])
	switch {
	case strings.HasPrefix(words[0], tokenPrefix):
		return sum, caller, errors.New("the line has the token itself, which every reader of the file could use: write the line that " +
			"headgate token create NAME prints, and use the token printed with it")
	case err != nil || len(digest) != sha256.Size:
		return sum, caller, errors.New("the line must begin with the SHA-256 of a token in 64 hexadecimal digits: write the line that " +
			"headgate token create NAME prints")
	case len(words) < 2 || !tokenName.MatchString(words[1]):
		return sum, caller, errors.New("name missing or invalid: after the digits write a name of letters, digits and . _ @ -")
	}
	copy(sum[:], digest)
	caller = Caller{Name: words[1], Role: Viewer}
	rest := words[2:]
	if len(rest) > 0 && slices.Contains(roles, Role(rest[0])) {
		caller.Role, rest = Role(rest[0]), rest[1:]
	}
	if len(rest) > 0 && strings.HasPrefix(rest[0], "tenant=") {
		caller.Tenant, rest = strings.TrimPrefix(rest[0], "tenant="), rest[1:]
		if caller.Tenant == "" || strings.ContainsFunc(caller.Tenant, unicode.IsSpace) {
			return sum, caller, errRights
		}
	}
	if len(rest) > 0 && (strings.HasPrefix(rest[0], "user=") || strings.HasPrefix(rest[0], "api_key=")) {
		caller.Subject, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return sum, caller, errRights
	}
	if caller.Role == CallerRole && caller.Tenant != "" {
		return sum, caller, errors.New("tenant=: not allowed for the role caller, since services check requests of all tenants: remove it")
	}
	return sum, caller, checkSubject(caller.Role, caller.Subject)
}
