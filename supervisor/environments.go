package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/comfy-supervisor/comfy-supervisor/envbuild"
	"github.com/comfy-supervisor/comfy-supervisor/mirror"
	"github.com/comfy-supervisor/comfy-supervisor/spawn/wire"
	"github.com/comfy-supervisor/comfy-supervisor/supervisor/api"
)

// query is where a session looks for environments: a host among the packs of its ComfyUI, then among those of its
// stack; the operator among all.
func (s *session) query() envbuild.Query {
	return envbuild.Query{ComfyUI: s.comfyui, Stack: s.stack, AnyStack: s.stack == ""}
}

// findEnvironment finds what a name means in a session. NAME@STACK asks for one stack.
func (d *Daemon) findEnvironment(s *session, name string) (envbuild.Environment, error) {
	query := s.query()
	plain, stack, chosen := strings.Cut(name, "@")
	if chosen {
		query.Stack, query.AnyStack = stack, false
	}
	var environment envbuild.Environment
	var err error
	recordTurns.Do(func() { environment, err = d.config.Environments.Find(plain, query) })
	if err != nil {
		return environment, environmentError(name, err)
	}
	return environment, nil
}

// environmentError gives the errors of Environments their kinds.
func environmentError(name string, err error) *wire.Error {
	kind := wire.KindInternal
	var notFound *envbuild.NotFoundError
	var ambiguous *envbuild.AmbiguousError
	var notBuilt *envbuild.NotBuiltError
	var nearest string
	switch {
	case errors.As(err, &notFound):
		kind = wire.KindUnknownEnvironment
		if len(notFound.Nearest) > 0 {
			nearest = notFound.Nearest[0]
		}
	case errors.As(err, &ambiguous):
		kind = wire.KindAmbiguous
	case errors.As(err, &notBuilt):
		kind = wire.KindNotBuilt
	}
	failure := wire.NewError(kind, err.Error())
	failure.Data.Environment = name
	failure.Data.Nearest = nearest
	return failure
}

// listBytes is how much of a list goes into one answer, half of what fits.
const listBytes = wire.MaxFrameBytes / 2

// serveEnvironments lists the environments that the client's session can use, in parts.
func (d *Daemon) serveEnvironments(_ context.Context, c *client, request *wire.Message) (any, error) {
	var params api.EnvironmentsParams
	if len(request.Params) > 0 {
		if err := json.Unmarshal(request.Params, &params); err != nil {
			return nil, wire.Errorf(wire.KindBadRequest, "the parameters of %s: %v", request.Method, err)
		}
	}
	var found []envbuild.Listed
	var err error
	query := c.session.query()
	recordTurns.Do(func() { found, err = d.config.Environments.List(query) })
	if err != nil {
		return nil, wire.Errorf(wire.KindInternal, "listing environments: %v", err)
	}
	result := api.EnvironmentsResult{Environments: []api.Environment{}}
	size := 0
	for _, environment := range found[min(max(params.After, 0), len(found)):] {
		described := api.Environment{
			Name: environment.Name, Stack: environment.Stack, Pack: environment.PackDirectory, Manifest: environment.Manifest,
			Python: environment.Python, Prefix: environment.Prefix, Revision: environment.Revision, Built: environment.BuiltAt,
		}
		if environment.Problem != nil {
			described.Error = environment.Problem.Error()
		}
		size += len(wire.Params(described))
		if size > listBytes && len(result.Environments) > 0 {
			result.More = true
			break
		}
		result.Environments = append(result.Environments, described)
	}
	return result, nil
}

// stackOf returns the stack that a host's facts ask for; empty when they do not say.
func stackOf(document json.RawMessage) string {
	var facts envbuild.Facts
	if len(document) == 0 || json.Unmarshal(document, &facts) != nil || facts.Python.Version == "" {
		return ""
	}
	return facts.Stack()
}

// comfyuiOf returns the ComfyUI folder in a host's facts; empty when they do not say.
func comfyuiOf(document json.RawMessage) string {
	var facts envbuild.Facts
	if len(document) == 0 || json.Unmarshal(document, &facts) != nil {
		return ""
	}
	return facts.ComfyUI.Directory
}

// environList turns variables into NAME=value strings, sorted by name.
func environList(variables map[string]string) []string {
	list := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		list = append(list, name+"="+variables[name])
	}
	return list
}

// describeVariables lists a worker's variables for status, and with them the mirrored flags and what is kept back.
func describeVariables(reflection mirror.Reflection) []api.Variable {
	rows := reflection.Rows()
	variables := make([]api.Variable, len(rows))
	for i, row := range rows {
		variables[i] = api.Variable{Name: row.Name, Kind: row.Kind, Value: row.Value, Source: string(row.Source), Note: row.Note}
	}
	return variables
}
