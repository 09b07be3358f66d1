package envbuild

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Packages with compiled CUDA code come from an index of their own. It is a simple index whose links are named
// by package, CUDA, torch, Python and platform: flash_attn-2.8.3+cu128torch2.10-cp312-cp312-manylinux_2_34_x86_64.whl
// (an older spelling of the middle is +pt2.10cu128). The name counts, not the file that the link leads to: one
// file that needs no torch is listed under several names.

// cudaStack is what a wheel of that index is built for.
type cudaStack struct {
	CUDA  string // "128"
	Torch string // "2.10"
}

// fallbackStacks are built for whenever the index has anything at all for a package, by platform.
var fallbackStacks = map[string]cudaStack{
	"linux/amd64":   {CUDA: "128", Torch: "2.8"},
	"windows/amd64": {CUDA: "128", Torch: "2.8"},
	"linux/arm64":   {CUDA: "130", Torch: "2.10"}, // torch 2.8 has no CUDA build for it
}

// torchCompanions are the torchvision and torchaudio of a torch release.
var torchCompanions = map[string][2]string{
	"2.8":  {"0.23", "2.8"},
	"2.10": {"0.25", "2.10"},
}

// cudaWheel is one link of the index.
type cudaWheel struct {
	Name    string // file name as listed
	Version string // public version
	URL     string
	Hash    string // SHA-256 from the link's fragment, "" without one
}

// noCUDAWheelError says that the index has nothing that fits.
type noCUDAWheelError struct {
	Package string
	Index   string
	Wanted  string
	Listed  []string
}

func (e *noCUDAWheelError) Error() string {
	text := fmt.Sprintf("the CUDA wheel index %s has no wheel of %s for %s", e.Index, e.Package, e.Wanted)
	switch count := len(e.Listed); {
	case count == 0:
		text += "; it lists none at all for this platform"
	case count > 6:
		text += fmt.Sprintf("; it has %s and %d more", strings.Join(e.Listed[:6], ", "), count-6)
	default:
		text += "; it has " + strings.Join(e.Listed, ", ")
	}
	return text
}

// resolveCUDA finds the wheels of a recipe's [cuda] packages: for the host's stack or, where one has none, all of
// them and torch for the fallback stack. The recipe that comes back holds them as direct references.
func (r *uvRun) resolveCUDA(ctx context.Context, recipe Recipe) (Recipe, []cudaWheel, error) {
	if len(recipe.CUDA) == 0 {
		return recipe, nil, nil
	}
	host := cudaStack{CUDA: strings.TrimPrefix(recipe.Torch, "cu")}
	for _, requirement := range recipe.Family {
		if name, version, _ := strings.Cut(requirement, "=="); name == "torch" {
			host.Torch = minorVersion(version)
		}
	}
	r.job.step("looking for %s in %s", strings.Join(recipe.CUDA, ", "), recipe.CUDAIndex)
	wheels, err := r.cudaWheels(ctx, recipe, host)
	var missing *noCUDAWheelError
	if errors.As(err, &missing) {
		fallback, known := fallbackStacks[recipe.Platform]
		if !known || fallback == host {
			return recipe, nil, err
		}
		var second error
		if wheels, second = r.cudaWheels(ctx, recipe, fallback); second != nil {
			return recipe, nil, fmt.Errorf("%w; nor for CUDA %s with torch %s, which is built for more packages", err, dotted(fallback.CUDA), fallback.Torch)
		}
		r.job.line("torch %s for CUDA %s in place of the host's: %v", fallback.Torch, dotted(fallback.CUDA), missing)
		recipe = fallbackFamily(recipe, fallback)
	} else if err != nil {
		return recipe, nil, err
	}
	recipe.Requirements = slices.Clone(recipe.Requirements)
	sources := map[string]Source{}
	for name, source := range recipe.Sources {
		sources[name] = source
	}
	for i, wheel := range wheels {
		name := RequirementName(recipe.CUDA[i])
		recipe.Requirements = slices.DeleteFunc(recipe.Requirements, func(other string) bool { return RequirementName(other) == name })
		recipe.Requirements = append(recipe.Requirements, name)
		sources[name] = Source{URL: wheel.URL}
		r.job.line("%s from the CUDA wheel index", wheel.Name)
	}
	recipe.Sources = sources
	return recipe, wheels, nil
}

// fallbackFamily replaces the host's torch family by that of a fallback stack.
func fallbackFamily(recipe Recipe, stack cudaStack) Recipe {
	companions := torchCompanions[stack.Torch]
	build := "cu" + stack.CUDA
	family := make([]string, 0, len(recipe.Family))
	for _, requirement := range recipe.Family {
		name, _, _ := strings.Cut(requirement, "==")
		version := map[string]string{"torch": stack.Torch, "torchvision": companions[0], "torchaudio": companions[1]}[name]
		family = append(family, name+"=="+version+".*")
	}
	if at := strings.LastIndex(recipe.Index, recipe.Torch); at >= 0 {
		recipe.Index = recipe.Index[:at] + build + recipe.Index[at+len(recipe.Torch):]
	}
	recipe.Family, recipe.Torch = family, build
	return recipe
}

// cudaWheels finds one wheel for each [cuda] package.
func (r *uvRun) cudaWheels(ctx context.Context, recipe Recipe, stack cudaStack) ([]cudaWheel, error) {
	var wheels []cudaWheel
	for _, requirement := range recipe.CUDA {
		listed, err := r.backend.indexes.cudaLinks(ctx, recipe.CUDAIndex, RequirementName(requirement))
		if err != nil {
			return nil, fmt.Errorf("the [cuda] packages of %s: %w", r.job.Plan.Name, err)
		}
		wheel, ok := chooseCUDAWheel(listed, requirement, stack, recipe.Python, recipe.Platform)
		if !ok {
			return nil, &noCUDAWheelError{Package: requirement, Index: recipe.CUDAIndex,
				Wanted: fmt.Sprintf("CUDA %s, torch %s, Python %s, %s", dotted(stack.CUDA), stack.Torch, minorVersion(recipe.Python), recipe.Platform),
				Listed: wheelNames(listed, recipe.Platform)}
		}
		wheels = append(wheels, wheel)
	}
	return wheels, nil
}

// dotted turns "128" into "12.8".
func dotted(cuda string) string {
	if len(cuda) < 2 {
		return cuda
	}
	return cuda[:len(cuda)-1] + "." + cuda[len(cuda)-1:]
}

// wheelNames lists the wheels of a platform, for an error.
func wheelNames(wheels []cudaWheel, platform string) []string {
	var names []string
	for _, wheel := range wheels {
		if parts, ok := splitWheel(wheel.Name); ok && platformFits(parts.platform, platform) {
			names = append(names, wheel.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// chooseCUDAWheel picks the newest version that fits; of one version a manylinux wheel before a plain one.
func chooseCUDAWheel(listed []cudaWheel, requirement string, stack cudaStack, python, platform string) (cudaWheel, bool) {
	specifier := strings.TrimPrefix(requirement, RequirementName(requirement))
	var best cudaWheel
	found := false
	for _, wheel := range listed {
		parts, ok := splitWheel(wheel.Name)
		local := "+" + parts.local
		fits := ok && (strings.Contains(local, "+cu"+stack.CUDA+"torch"+stack.Torch) || strings.Contains(local, "+pt"+stack.Torch+"cu"+stack.CUDA)) &&
			exactStack(local, stack) && pythonFits(parts.python, parts.abi, python) && platformFits(parts.platform, platform) &&
			satisfies(parts.version, specifier)
		if !fits {
			continue
		}
		wheel.Version = parts.version
		order := compareVersions(parts.version, best.Version)
		if !found || order > 0 || order == 0 && strings.Contains(wheel.Name, "manylinux") && !strings.Contains(best.Name, "manylinux") {
			best, found = wheel, true
		}
	}
	return best, found
}

// exactStack keeps torch 2.1 from matching torch2.10: after the release no digit may follow.
func exactStack(local string, stack cudaStack) bool {
	for _, text := range []string{"cu" + stack.CUDA + "torch" + stack.Torch, "pt" + stack.Torch + "cu" + stack.CUDA} {
		if _, after, found := strings.Cut(local, text); found {
			return after == "" || after[0] < '0' || after[0] > '9'
		}
	}
	return false
}

// wheelParts are the parts of a wheel's file name.
type wheelParts struct{ version, local, python, abi, platform string }

func splitWheel(file string) (wheelParts, bool) {
	base, isWheel := strings.CutSuffix(file, ".whl")
	fields := strings.Split(base, "-")
	if !isWheel || len(fields) < 5 || len(fields) > 6 { // a build number may stand in the middle
		return wheelParts{}, false
	}
	version, local, _ := strings.Cut(fields[1], "+")
	tags := fields[len(fields)-3:]
	return wheelParts{version: version, local: local, python: tags[0], abi: tags[1], platform: tags[2]}, true
}

// pythonFits reports whether an interpreter of that version loads a wheel with these tags.
func pythonFits(tag, abi, python string) bool {
	minor := minorVersion(python)
	mine := strings.ReplaceAll(minor, ".", "")
	for one := range strings.SplitSeq(tag, ".") {
		switch number, compiled := strings.CutPrefix(one, "cp"); {
		case compiled && number == mine && abi != "none" && (abi == "cp"+mine || abi == "abi3"):
			return true
		case compiled && abi == "abi3" && strings.HasPrefix(number, "3"):
			oldest, err := strconv.Atoi(strings.TrimPrefix(number, "3"))
			own, err2 := strconv.Atoi(strings.TrimPrefix(mine, "3"))
			if err == nil && err2 == nil && oldest <= own {
				return true
			}
		case (one == "py3" || one == "py"+mine || one == "cp"+mine) && abi == "none":
			return true
		}
	}
	return false
}

// platformFits reports whether a wheel's platform tag is for a platform. The processor is at its end.
func platformFits(tag, platform string) bool {
	for one := range strings.SplitSeq(tag, ".") {
		switch platform {
		case "linux/amd64":
			if strings.Contains(one, "linux") && strings.HasSuffix(one, "_x86_64") {
				return true
			}
		case "linux/arm64":
			if strings.Contains(one, "linux") && strings.HasSuffix(one, "_aarch64") {
				return true
			}
		case "windows/amd64":
			if one == "win_amd64" {
				return true
			}
		}
	}
	return tag == "any"
}

// satisfies evaluates version specifiers (">=1.2,<2") for release numbers.
func satisfies(version, specifiers string) bool {
	for specifier := range strings.SplitSeq(specifiers, ",") {
		specifier = strings.TrimSpace(specifier)
		operator := specifier[:len(specifier)-len(strings.TrimLeft(specifier, "=<>!~"))]
		wanted := strings.TrimSpace(specifier[len(operator):])
		if wanted == "" || wanted == "*" {
			continue
		}
		order := compareVersions(version, wanted)
		prefix, wild := strings.CutSuffix(wanted, ".*")
		var holds bool
		switch operator {
		case "==", "===", "":
			holds = order == 0
			if wild {
				holds = versionMatches(version, prefix)
			}
		case "!=":
			holds = order != 0
			if wild {
				holds = !versionMatches(version, prefix)
			}
		case ">=":
			holds = order >= 0
		case "<=":
			holds = order <= 0
		case ">":
			holds = order > 0
		case "<":
			holds = order < 0
		case "~=":
			parts := strings.Split(numericVersion(wanted), ".")
			holds = order >= 0 && len(parts) > 1 && versionMatches(version, strings.Join(parts[:len(parts)-1], "."))
		}
		if !holds {
			return false
		}
	}
	return true
}

// cudaLinks are the wheels that the index lists for a package, asked once. The folder may be spelt with dashes
// or underscores.
func (i *indexes) cudaLinks(ctx context.Context, index, name string) ([]cudaWheel, error) {
	var last error
	for _, spelling := range slices.Compact([]string{name, strings.ReplaceAll(name, "-", "_")}) {
		page, err := i.page(ctx, index, spelling)
		var absent *absentError
		if errors.As(err, &absent) {
			last = err
			continue
		}
		if err != nil {
			return nil, err
		}
		var wheels []cudaWheel
		for _, link := range page.links {
			address, err := page.address.Parse(link.target)
			if err != nil || !strings.HasSuffix(link.name, ".whl") {
				continue
			}
			hash := ""
			if values, err := url.ParseQuery(address.Fragment); err == nil {
				hash = values.Get("sha256")
			}
			address.Fragment = ""
			if hash == "" {
				hash = link.hash
			}
			wheels = append(wheels, cudaWheel{Name: link.name, URL: address.String(), Hash: strings.ToLower(hash)})
		}
		return wheels, nil
	}
	return nil, last
}
