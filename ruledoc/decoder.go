package ruledoc

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// decoder converts the nodes of one source to rules. Its In is the ID of the rule that is being decoded.
type decoder struct {
	yamldoc.Decoder
	cache *cache
}

// cache holds values that are expensive to create and may occur many times in a document.
type cache struct {
	conditions map[string]headgate.Condition
	zones      map[string]*time.Location
}

func newDecoder(s source, number int, report *yamldoc.Report, cache *cache) *decoder {
	d := &decoder{cache: cache}
	d.Source, d.Number, d.Report, d.NoValue = s, number, report, noValue
	return d
}

// noValue holds the remedies for keys without a value.
var noValue = map[string]string{
	"by": "write by: [ip] to count per address, or by: [] for one counter for all requests",
}

type (
	node  = yamldoc.Node
	entry = yamldoc.Entry
	// testField is a key of a rule test file.
	testField[T any] = yamldoc.Field[*decoder, T]
)
