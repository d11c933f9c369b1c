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
	// tokenPrefix makes tokens known to people, and to programs that look for secrets where none belong.
	tokenPrefix = "hgt_"
	// rereadEvery is how soon a changed file is noticed.
	rereadEvery = time.Second
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// NewToken makes a token, and the line by which a file of tokens knows it. The name says whose it is; rights are the
// words that follow it in the line.
func NewToken(name string, rights ...string) (token, line string, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(token))
	words := append([]string{hex.EncodeToString(sum[:]), name}, rights...)
	if !tokenName.MatchString(name) {
		return "", "", errors.New("a token's name is 1 to 64 letters, digits and . _ @ -, and begins with a letter or digit")
	}
	if _, _, err := parseToken(words); err != nil {
		return "", "", err
	}
	return token, strings.Join(words, " "), nil
}

// Tokens are those of a file. They are safe for use by many goroutines.
type Tokens struct {
	file string
	log  *slog.Logger

	known atomic.Pointer[knownTokens]
	read  atomic.Int64 // when, in Unix nanoseconds

	mu   sync.Mutex // of reading it
	text []byte     // that known was made of
	said string     // what was wrong with the file when last read
}

// knownTokens are the lines of a file: by the hashes of tokens, so that nobody can take a token from there.
type knownTokens map[[sha256.Size]byte]Caller

// ReadTokens reads a file that has a line for each token: the SHA-256 of the token in 64 hexadecimal digits, a name, a
// role (viewer if there is none), for a caller of a tenant tenant=NAME, and for one with the role self user=NAME or api_key=HASH.
// Empty lines and those that begin with # are left alone. The file is read again while it is in use, within a second of a change; if it makes no sense then, the
// tokens at hand stay and the log is told.
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
		log.Warn("there are no tokens: everybody is rejected", "file", file)
	}
	return t, nil
}

// Caller is whose line has the token's hash.
func (t *Tokens) Caller(_ context.Context, token string) (Caller, error) {
	now, read := time.Now().UnixNano(), t.read.Load()
	if now-read >= int64(rereadEvery) && t.read.CompareAndSwap(read, now) {
		t.reload()
	}
	caller, ok := (*t.known.Load())[sha256.Sum256([]byte(token))]
	if !ok {
		return Caller{}, errUnknown
	}
	return caller, nil
}

// Has reports whether a token has this role.
func (t *Tokens) Has(role Role) bool {
	for _, caller := range *t.known.Load() {
		if caller.Role == role {
			return true
		}
	}
	return false
}

// reload tells the log of what has changed.
func (t *Tokens) reload() {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.text
	switch err := t.load(); {
	case err == nil && (t.said != "" || !bytes.Equal(before, t.text)):
		t.said = ""
		t.log.Info("tokens read again", "file", t.file, "tokens", len(*t.known.Load()))
	case err != nil && t.said != err.Error():
		t.said = err.Error()
		t.log.Error("the file of tokens cannot be used: those at hand stay", "error", t.said)
	}
}

func (t *Tokens) load() error {
	text, err := os.ReadFile(t.file) //nolint:gosec // the config names the file, and no request does
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

// parseTokens shows nothing of what is wrong: it might be a token.
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

var errRights = errors.New("after the name comes a role, which is caller, self, viewer, editor or admin, then tenant=NAME if it is for one " +
	"tenant, then user=NAME or api_key=HASH if the role is self, and nothing else")

func parseToken(words []string) (sum [sha256.Size]byte, caller Caller, err error) {
	digest, err := hex.DecodeString(words[0])
	switch {
	case strings.HasPrefix(words[0], tokenPrefix):
		return sum, caller, errors.New("this is a token itself, which everybody who reads the file could use: write the line that " +
			"headgate token create NAME prints, and use the token that comes with it")
	case err != nil || len(digest) != sha256.Size:
		return sum, caller, errors.New("a line begins with the SHA-256 of a token in 64 hexadecimal digits: write the line that " +
			"headgate token create NAME prints")
	case len(words) < 2 || !tokenName.MatchString(words[1]):
		return sum, caller, errors.New("write a name after the digits, in letters, digits and . _ @ -")
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
		return sum, caller, errors.New("the role caller is for services, which ask for all tenants: leave tenant= out")
	}
	return sum, caller, checkSubject(caller.Role, caller.Subject)
}
