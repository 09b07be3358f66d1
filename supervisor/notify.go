package supervisor

import (
	"fmt"
	"net"
	"strings"
)

// NotifyServiceManager tells systemd a state such as "READY=1", when it started this process with Type=notify; the
// variable NOTIFY_SOCKET in the environment says where. Without it nothing happens.
func NotifyServiceManager(environ []string, state string) error {
	var address string
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, "NOTIFY_SOCKET="); ok {
			address = value
		}
	}
	if address == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", address) // a leading @ is the abstract namespace, here as there
	if err != nil {
		return fmt.Errorf("telling the service manager %s: %w", state, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("telling the service manager %s: %w", state, err)
	}
	return nil
}
