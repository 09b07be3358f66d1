package api

import "testing"

func TestAnEnvelopeThatIsCutOffIsRefused(t *testing.T) {
	for body, expected := range map[string]string{"\x02\x00\x00\x00{}": "{}", "\x02\x00\x00\x00{}more": "{}", "\x00\x00\x00\x00": ""} {
		if content, err := EnvelopeJSON([]byte(body)); err != nil || string(content) != expected {
			t.Errorf("%q: got %q, %v", body, content, err)
		}
	}
	for _, body := range []string{"", "\x01\x00\x00", "\x03\x00\x00\x00{}", "\xff\xff\xff\xff{}"} {
		if content, err := EnvelopeJSON([]byte(body)); err == nil {
			t.Errorf("%q: got %q", body, content)
		}
	}
}
