package ruledoc

import (
	"iter"

	"github.com/headgate/headgate"
)

// Apply puts the document's rules, overrides and exemptions in the place of the limiter's. If it fails, nothing has
// changed.
func (d *Document) Apply(limiter *headgate.Limiter) error {
	if err := limiter.Exceptions().Replace(each(d.Overrides), each(d.Exemptions)); err != nil {
		return err
	}
	limiter.SetRules(d.Rules)
	return nil
}

func each[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}
