package ruledoc

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// decoder turns the nodes of one source into rules. The part of the document that it is in is a rule, by its ID.
type decoder struct {
	yamldoc.Decoder
	known *known
}

// known is what takes long to make, and is the same wherever a document has it.
type known struct {
	conditions map[string]headgate.Condition
	zones      map[string]*time.Location
}

func newDecoder(s source, number int, report *yamldoc.Report, known *known) *decoder {
	d := &decoder{known: known}
	d.Source, d.Number, d.Report, d.NoValue = s, number, report, noValue
	return d
}

// noValue is what to write for keys without a value.
var noValue = map[string]string{
	"by": "write by: [ip] to count each address, or by: [] for one counter for everybody",
}

type (
	node  = yamldoc.Node
	entry = yamldoc.Entry
	// testField is a key of a file of rule tests.
	testField[T any] = yamldoc.Field[*decoder, T]
)
