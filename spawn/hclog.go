package spawn

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// hclogTo makes the logger that go-plugin wants of the one that the rest uses.
func hclogTo(logger zerolog.Logger) hclog.Logger {
	bridge := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclogLevel(logger.GetLevel()), Output: io.Discard})
	bridge.RegisterSink(&zerologSink{logger})
	return bridge
}

// zerologSink implements hclog.SinkAdapter.
type zerologSink struct{ logger zerolog.Logger }

// Accept implements hclog.SinkAdapter.
func (s *zerologSink) Accept(name string, level hclog.Level, message string, arguments ...any) {
	event := s.logger.WithLevel(zerologLevel(level))
	if event == nil {
		return
	}
	if name != "" {
		event = event.Str("component", name)
	}
	for index := 0; index+1 < len(arguments); index += 2 {
		event = event.Any(fmt.Sprint(arguments[index]), readable(arguments[index+1]))
	}
	event.Msg(message)
}

// readable turns values into what reads well as JSON.
func readable(value any) any {
	switch value := value.(type) {
	case error:
		return value.Error()
	case hclog.Format:
		if len(value) > 0 {
			if format, ok := value[0].(string); ok {
				return fmt.Sprintf(format, value[1:]...)
			}
		}
	case fmt.Stringer:
		return value.String()
	}
	return value
}

func zerologLevel(level hclog.Level) zerolog.Level {
	switch level {
	case hclog.Trace:
		return zerolog.TraceLevel
	case hclog.Debug, hclog.Info:
		return zerolog.DebugLevel // go-plugin's "info" is about its own business
	case hclog.Warn:
		return zerolog.WarnLevel
	case hclog.Error:
		return zerolog.ErrorLevel
	}
	return zerolog.NoLevel
}

func hclogLevel(level zerolog.Level) hclog.Level {
	switch {
	case level <= zerolog.TraceLevel:
		return hclog.Trace
	case level == zerolog.DebugLevel:
		return hclog.Debug
	case level <= zerolog.WarnLevel:
		return hclog.Warn
	case level < zerolog.NoLevel:
		return hclog.Error
	}
	return hclog.Off
}
