package spawn

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/comfy-supervisor/comfy-supervisor/spawn/launcherpb"
)

// pluginProtocol is the version of the contract in launcherpb that this program speaks. A supervisor adopts launchers of
// every version in pluginSets.
const pluginProtocol = 1

// pluginName is the one plugin that a launcher serves.
const pluginName = "worker"

var handshake = plugin.HandshakeConfig{
	ProtocolVersion:  pluginProtocol,
	MagicCookieKey:   "COMFY_SUPERVISOR_LAUNCHER_COOKIE",
	MagicCookieValue: "e7c1a5f0-worker-launcher",
}

// pluginVariables are what go-plugin and we put into a launcher's environment and must never reach Python.
var pluginVariables = []string{
	handshake.MagicCookieKey, launcherVariable, keyVariable, folderVariable, versionVariable, relayVariable,
	"PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_CLIENT_CERT",
	plugin.EnvUnixSocketDir, plugin.EnvUnixSocketGroup, "PLUGIN_MULTIPLEX_GRPC",
}

// Windows of HTTP/2, in bytes. Setting them switches gRPC's bandwidth probes off, which cost a ping per burst.
const (
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
)

// launcherPlugin is both ends of the contract for go-plugin: server is set in the launcher.
type launcherPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server launcherpb.LauncherServer
}

// launcherConnection is what a supervisor gets by dispensing the plugin.
type launcherConnection struct {
	api    launcherpb.LauncherClient
	conn   *grpc.ClientConn
	broker *plugin.GRPCBroker
}

// GRPCServer implements plugin.GRPCPlugin.
func (p *launcherPlugin) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	launcherpb.RegisterLauncherServer(server, p.server)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (p *launcherPlugin) GRPCClient(_ context.Context, broker *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &launcherConnection{api: launcherpb.NewLauncherClient(conn), conn: conn, broker: broker}, nil
}

// pluginSets are the versions of the contract, each with what serves it.
func pluginSets(server launcherpb.LauncherServer) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{pluginProtocol: {pluginName: &launcherPlugin{server: server}}}
}

// keyHeader is the metadata that carries the launcher's key on every call.
const keyHeader = "comfy-supervisor-key"

func newKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return hex.EncodeToString(key[:])
}

// serverOptions make a server that refuses every call without the key, those of go-plugin's own services included.
func serverOptions(key string) []grpc.ServerOption {
	check := func(ctx context.Context) error {
		given := metadata.ValueFromIncomingContext(ctx, keyHeader)
		if len(given) != 1 || subtle.ConstantTimeCompare([]byte(given[0]), []byte(key)) != 1 {
			return status.Error(codes.Unauthenticated, "the launcher's key is missing or wrong")
		}
		return nil
	}
	return []grpc.ServerOption{
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return handler(ctx, request)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := check(stream.Context()); err != nil {
				return err
			}
			return handler(server, stream)
		}),
	}
}

// dialOptions are the client's side of serverOptions.
func dialOptions(key string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(metadata.AppendToOutgoingContext(ctx, keyHeader, key), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(metadata.AppendToOutgoingContext(ctx, keyHeader, key), description, conn, method, options...)
		}),
	}
}
