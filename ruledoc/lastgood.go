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

// LastGoodFormat is the version of the file of the last good rules. Files of another version are not read.
const LastGoodFormat = 1

// lastGoodMagic begins the first line: "headgate-kept-rules 1 <SHA-256 of the rest of the file, in hex>". The rest of the file
// is a lastGood in JSON.
const lastGoodMagic = "headgate-kept-rules"

// lastGood is the content of the file of the last good rules.
type lastGood struct {
	// At is when the rules were applied.
	At      time.Time `json:"kept_at"`
	Version string    `json:"version"`
	Sources []source  `json:"sources"`
}

func newLastGood(version string, sources []source) *lastGood {
	return &lastGood{time.Now().UTC().Truncate(time.Second), version, sources}
}

// readLastGood reads the last good rules. It returns nil and no error if the file does not exist.
func readLastGood(path string) (*lastGood, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // G304: the operator chooses the file
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read last good rules: %w", err)
	}
	saved, err := decodeLastGood(data)
	if err != nil {
		return nil, fmt.Errorf("last good rules in %s: %w; the next valid rules replace the file", path, err)
	}
	return saved, nil
}

// decodeLastGood checks the header and the checksum of a file and decodes its body.
func decodeLastGood(data []byte) (*lastGood, error) {
	line, body, _ := bytes.Cut(data, []byte("\n"))
	words := strings.Split(string(line), " ")
	if len(words) != 3 || words[0] != lastGoodMagic {
		return nil, errors.New("wrong file type or damaged: the first line does not begin with " + lastGoodMagic)
	}
	if words[1] != strconv.Itoa(LastGoodFormat) {
		return nil, fmt.Errorf("unsupported file format %q: this program reads format %d", words[1], LastGoodFormat)
	}
	if words[2] != checksum(body) {
		return nil, errors.New("damaged: checksum mismatch")
	}
	var saved lastGood
	if err := json.Unmarshal(body, &saved); err != nil {
		return nil, fmt.Errorf("invalid content: %w", err)
	}
	return &saved, nil
}

// write replaces the file atomically: a reader finds either the old or the new rules, even after a power failure.
func (saved *lastGood) write(path string) (err error) {
	body, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("cannot save last good rules: %w", err)
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, "."+base+".*") // 0600: rules may name customers
	if err != nil {
		return fmt.Errorf("cannot save last good rules in %s; they would not survive a restart: make sure that the directory "+
			"exists and is writable: %w", path, cause(err))
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("cannot save last good rules in %s; they would not survive a restart: %w", path, cause(err))
		}
	}()
	if _, err := fmt.Fprintf(f, "%s %d %s\n%s", lastGoodMagic, LastGoodFormat, checksum(body), body); err != nil {
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

// syncDirectory makes a rename durable. Errors are ignored: not all systems support it, and the file itself is complete in any
// case.
func syncDirectory(dir string) {
	if d, err := os.Open(dir); err == nil { //nolint:gosec // G304: as in readLastGood
		_ = d.Sync()
		_ = d.Close()
	}
}

// cause returns the innermost error, without the name of the temporary file, which is different each time.
func cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// checkLastGoodFile rejects a file that would itself be read as a rule file.
func checkLastGoodFile(file string, paths []string) error {
	if file == "" {
		return nil
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("last good file: %w", err)
	}
	for _, path := range paths {
		if path, err = filepath.Abs(path); err == nil && (file == path || filepath.Dir(file) == path) {
			return fmt.Errorf("last good file %s is one of the rule files or in their directory: choose another path", file)
		}
	}
	return nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
