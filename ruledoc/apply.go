package ruledoc

import (
	"iter"

	"github.com/headgate/headgate"
)

// Apply replaces the limiter's rules, overrides and exemptions by those of the document. If it returns an error, the limiter
// is unchanged.
func (d *Document) Apply(limiter *headgate.Limiter) error {
	if err := limiter.Exceptions().Replace(each(d.Overrides), each(d.Exemptions)); err != nil {
		return err
	}
	limiter.SetRules(d.Rules)
	return nil
}

// each returns an iterator over a slice without errors.
func each[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}
