package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"testing"
)

func TestSVG(t *testing.T) {
	bars := &Bars{Title: "Speed", Unit: "per second", Groups: []Group{
		{"Library", []Bar{{"a & <b>", 500, false}, {"ours", 1000, true}}},
		{"Service", []Bar{{"slow", 0.004, false}}},
	}}
	svg := bars.SVG()
	if !bytes.Equal(svg, bars.SVG()) {
		t.Error("two drawings of the same bars differ")
	}
	texts, widths := read(t, svg)
	want := []string{"Speed", "per second", "Library", "a & <b>", "500", "ours", "1000", "Service", "slow", "0.00"}
	if !slices.Equal(texts, want) {
		t.Errorf("texts are %q, want %q", texts, want)
	}
	if want := []string{"900", "250", "500", "1"}; !slices.Equal(widths, want) {
		t.Errorf("widths of rectangles are %q, want %q: the background's, and those of bars by their values", widths, want)
	}
}

// read returns the texts and the widths of rectangles. It fails if svg is not XML.
func read(t *testing.T, svg []byte) (texts, widths []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts, widths
		} else if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
			for _, a := range e.Attr {
				if e.Name.Local == "rect" && a.Name.Local == "width" {
					widths = append(widths, a.Value)
				}
			}
		case xml.CharData:
			if inText {
				texts = append(texts, string(e))
			}
		case xml.EndElement:
			inText = false
		}
	}
}
