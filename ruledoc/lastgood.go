package ruledoc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// keptFormat is the version of the file's format. A program that meets another one leaves it unread.
const keptFormat = 1

// keptMagic begins the first line: "headgate-kept-rules 1 <SHA-256 of all that follows, in hex>". The rest is a kept in
// JSON.
const keptMagic = "headgate-kept-rules"

// kept is the last good rules as they stand in a file.
type kept struct {
	// At is when they were first in use.
	At      time.Time `json:"kept_at"`
	Version string    `json:"version"`
	Sources []source  `json:"sources"`
}

func newKept(version string, sources []source) *kept {
	return &kept{time.Now().UTC().Truncate(time.Second), version, sources}
}

// readKept returns nil and no error if there is no such file.
func readKept(path string) (*kept, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // G304: whoever runs the program says which file it is
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read kept rules: %w", err)
	}
	k, err := decodeKept(data)
	if err != nil {
		return nil, fmt.Errorf("kept rules in %s: %w; the next good rules replace the file", path, err)
	}
	return k, nil
}

func decodeKept(data []byte) (*kept, error) {
	line, body, _ := bytes.Cut(data, []byte("\n"))
	words := strings.Split(string(line), " ")
	if len(words) != 3 || words[0] != keptMagic {
		return nil, errors.New("the file is something else, or damaged: its first line is not " + keptMagic + " …")
	}
	if words[1] != strconv.Itoa(keptFormat) {
		return nil, fmt.Errorf("the file has format %q and this program reads format %d", words[1], keptFormat)
	}
	if words[2] != checksum(body) {
		return nil, errors.New("the file is damaged: its checksum does not fit")
	}
	var k kept
	if err := json.Unmarshal(body, &k); err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	return &k, nil
}

// write replaces the file whole: whoever reads it finds the old rules or the new ones, also after a power cut.
func (k *kept) write(path string) (err error) {
	body, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("cannot keep rules: %w", err)
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*") // 0600: rules may name customers
	if err != nil {
		return fmt.Errorf("cannot keep rules in %s, so they would not survive a restart: the directory must exist and this "+
			"program must be allowed to write to it: %w", path, cause(err))
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("cannot keep rules in %s, so they would not survive a restart: %w", path, cause(err))
		}
	}()
	if _, err := fmt.Fprintf(f, "%s %d %s\n%s", keptMagic, keptFormat, checksum(body), body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDirectory(dir)
	return nil
}

// syncDirectory makes a rename last. Not every system can do it; the file itself is whole in any case.
func syncDirectory(dir string) {
	if d, err := os.Open(dir); err == nil { //nolint:gosec // G304: as in readKept
		_ = d.Sync()
		_ = d.Close()
	}
}

// cause leaves out the name of the temporary file, which is another one each time.
func cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// checkKeep denies a file that would be taken for rules itself.
func checkKeep(keep string, paths []string) error {
	if keep == "" {
		return nil
	}
	keep, err := filepath.Abs(keep)
	if err != nil {
		return fmt.Errorf("cannot keep rules: %w", err)
	}
	for _, path := range paths {
		if path, err = filepath.Abs(path); err == nil && (keep == path || filepath.Dir(keep) == path) {
			return fmt.Errorf("the last good rules cannot be kept in %s: that is among the rule files: name another place", keep)
		}
	}
	return nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
