package supervisor

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestTheOwnLogIsWrittenInOrderAndToItsEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writer := NewLogWriter(&out)
	log := zerolog.New(writer)
	for i := range 1000 {
		log.Info().Int("number", i).Send()
	}
	writer.Close(time.Minute)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 1000 || lines[0] != `{"level":"info","number":0}` || lines[999] != `{"level":"info","number":999}` {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
	if count, err := writer.Write([]byte("late")); count != 4 || err != nil {
		t.Errorf("got %d, %v", count, err)
	}
}

func TestAnOwnLogThatNobodyReadsHoldsUpNobodyAndCountsWhatItDrops(t *testing.T) {
	t.Parallel()
	reader, output := io.Pipe() // takes nothing before it is read
	writer := NewLogWriter(output)
	log := zerolog.New(writer)
	log.Info().Msg("first")
	begun := make([]byte, 1)
	if _, err := reader.Read(begun); err != nil { // the rest of the line waits, and so does the writing goroutine
		t.Fatal(err)
	}
	text := strings.Repeat("x", 64<<10)
	for range 100 {
		log.Info().Msg(text)
	}
	writer.Close(time.Millisecond) // gives up
	content := make(chan string)
	go func() {
		all, _ := io.ReadAll(reader)
		content <- string(all)
	}()
	<-writer.done
	_ = output.Close()
	got := <-content
	kept := strings.Count(got, text)
	if kept < 10 || kept*len(text) > ownLogQueueBytes {
		t.Errorf("%d lines of 64 KiB were kept", kept)
	}
	if strings.Count(got, `"lines":`) != 1 || !strings.Contains(got, `"lines":`+strconv.Itoa(100-kept)+",") {
		t.Errorf("the notice is missing; it ends with %s", got[len(got)-300:])
	}
}
