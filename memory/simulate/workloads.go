package simulate

import (
	"fmt"
	"time"

	"github.com/comfy-supervisor/comfy-supervisor/memory"
)

// Sizes of real models, as they lie on the card.
var (
	sdxl      = Model{Name: "SDXL fp16", Size: 4897 * memory.MiB}
	sdxlClip  = Model{Name: "SDXL text encoders", Size: 1560 * memory.MiB}
	flux      = Model{Name: "Flux fp8", Size: 11350 * memory.MiB}
	t5        = Model{Name: "T5-XXL fp8", Size: 4670 * memory.MiB}
	upscaler  = Model{Name: "upscaler", Size: 320 * memory.MiB}
	sam       = Model{Name: "SAM3", Size: 3450 * memory.MiB}
	depth     = Model{Name: "depth", Size: 1340 * memory.MiB}
	florence  = Model{Name: "captioner", Size: 1550 * memory.MiB}
	wan       = Model{Name: "video 14B fp8", Size: 14200 * memory.MiB}
	trellis   = Model{Name: "3D", Size: 7900 * memory.MiB}
	tts       = Model{Name: "speech", Size: 2900 * memory.MiB}
	llm       = Model{Name: "prompt writer 8B", Size: 8300 * memory.MiB}
	vae       = Model{Name: "VAE", Size: 160 * memory.MiB}
	faceModel = Model{Name: "faces", Size: 880 * memory.MiB}
)

func node(environment string, model Model, activation memory.Bytes, compute time.Duration) []Node {
	return []Node{{Environment: environment, Model: model, Activation: activation, Compute: compute}}
}

// portrait is what most people run: the host draws, packs refine.
func portrait() Workflow {
	return Workflow{Name: "portrait", Weight: 3, Steps: [][]Node{
		node("caption", florence, 900*memory.MiB, 2*time.Second),
		node("", sdxlClip, 300*memory.MiB, time.Second),
		node("", sdxl, 2200*memory.MiB, 8*time.Second),
		node("", vae, 1800*memory.MiB, time.Second),
		node("segment", sam, 1300*memory.MiB, 3*time.Second),
		node("faces", faceModel, 600*memory.MiB, 2*time.Second),
		node("upscale", upscaler, 1500*memory.MiB, 4*time.Second),
	}}
}

// fluxScene needs most of a 24 GiB card for one model.
func fluxScene() Workflow {
	return Workflow{Name: "flux", Weight: 2, Steps: [][]Node{
		node("writer", llm, 1200*memory.MiB, 5*time.Second),
		node("", t5, 400*memory.MiB, 2*time.Second),
		node("", flux, 2600*memory.MiB, 20*time.Second),
		node("", vae, 1800*memory.MiB, time.Second),
		node("depth", depth, 700*memory.MiB, 2*time.Second),
		node("upscale", upscaler, 1500*memory.MiB, 4*time.Second),
	}}
}

// video and shape3D are heavy packs.
func video() Workflow {
	return Workflow{Name: "video", Weight: 1, Steps: [][]Node{
		node("caption", florence, 900*memory.MiB, 2*time.Second),
		node("", t5, 400*memory.MiB, 2*time.Second),
		node("video", wan, 4200*memory.MiB, 90*time.Second),
		node("speech", tts, 800*memory.MiB, 6*time.Second),
	}}
}

func shape3D() Workflow {
	return Workflow{Name: "3D", Weight: 1, Steps: [][]Node{
		node("segment", sam, 1300*memory.MiB, 3*time.Second),
		node("shape", trellis, 3200*memory.MiB, 25*time.Second),
	}}
}

// fanOut runs several packs beside each other, as asynchronous nodes do.
func fanOut() Workflow {
	return Workflow{Name: "fan-out", Weight: 2, Steps: [][]Node{
		node("", sdxl, 2200*memory.MiB, 8*time.Second),
		{
			{"segment", sam, 1300 * memory.MiB, 6 * time.Second},
			{"depth", depth, 700 * memory.MiB, 5 * time.Second},
			{"writer", llm, 1200 * memory.MiB, 7 * time.Second},
			{"speech", tts, 800 * memory.MiB, 6 * time.Second},
			{"shape", trellis, 3200 * memory.MiB, 9 * time.Second},
		},
	}}
}

const cardReserve = 454 * memory.MiB // what the driver keeps of 24 GiB

func scenario(name string) Scenario {
	return Scenario{Name: name, Seed: 1, Duration: 4 * time.Hour, Rules: memory.DefaultRules(), Limits: memory.DefaultLimits(),
		Cards:   []Card{{Total: 24 * memory.GiB, Driver: cardReserve}},
		Machine: Machine{RAM: 96 * memory.GiB, Other: 4 * memory.GiB}}
}

func person(workflows ...Workflow) Session {
	return Session{Workflows: workflows, ThinkLow: 4 * time.Second, ThinkHigh: 40 * time.Second, Streak: 6}
}

// Standard are the workloads that every change of the policy is measured on.
func Standard() []Scenario {
	steady := scenario("steady")
	steady.Sessions = []Session{person(portrait(), fluxScene())}

	burst := scenario("burst")
	burst.Sessions = []Session{person(fanOut(), portrait())}
	burst.Sessions[0].ThinkLow, burst.Sessions[0].ThinkHigh = time.Second, 8*time.Second

	two := scenario("two hosts")
	two.Sessions = []Session{person(portrait(), fluxScene()), person(portrait(), shape3D(), video())}
	two.Sessions[1].Start = 7 * time.Second

	tight := scenario("RAM-tight")
	tight.Machine = Machine{RAM: 256 * memory.GiB, Limit: 40 * memory.GiB, Other: 2 * memory.GiB}
	tight.Cards = append(tight.Cards, tight.Cards[0])
	tight.Sessions = []Session{person(portrait(), fluxScene(), video()), person(portrait(), video(), shape3D())}
	tight.Sessions[1].Card = 1

	local := scenario("process-local")
	local.Cards[0].ProcessLocal = true
	local.Sessions = []Session{person(portrait(), fluxScene()), person(portrait(), shape3D())}
	local.Sessions[1].Start = 11 * time.Second

	crashes := scenario("crash-heavy")
	crashes.Sessions = []Session{person(portrait(), fluxScene(), fanOut()), person(portrait(), shape3D(), video())}
	crashes.Faults = Faults{WorkerLife: 4 * time.Minute, HostLife: time.Hour, Lost: 0.01, Late: 0.05, LateBy: 3 * time.Second, Skew: 0.1,
		Silent: 0.05, Surprise: 0.05, Foreign: []Foreign{{0, time.Hour, 90 * time.Minute, 6 * memory.GiB}, {0, 3 * time.Hour, 200 * time.Minute, 12 * memory.GiB}}}

	paged := scenario("paged")
	paged.Sessions = []Session{person(portrait(), fluxScene()), person(portrait(), video())}
	for i := range paged.Sessions {
		page(&paged.Sessions[i])
	}
	return []Scenario{steady, burst, two, tight, local, crashes, paged}
}

// page makes every model of a session a paged one.
func page(s *Session) {
	for i := range s.Workflows {
		for _, step := range s.Workflows[i].Steps {
			for j := range step {
				step[j].Model.Paged = true
			}
		}
	}
}

// Crowd is a machine with many cards, hosts and packs: about a thousand processes alive at once, several thousand in all.
func Crowd() Scenario {
	s := scenario("crowd")
	s.Duration = time.Hour
	s.Cards, s.Sessions = nil, nil
	s.Machine = Machine{RAM: 4 * memory.TiB, Other: 64 * memory.GiB}
	for range 16 {
		s.Cards = append(s.Cards, Card{Total: 80 * memory.GiB, Driver: 600 * memory.MiB})
	}
	for host := range 64 {
		flow := Workflow{Name: "long", Weight: 1}
		for pack := range 20 {
			model := Model{Name: fmt.Sprint("model ", pack), Size: memory.Bytes(1+(pack*7+host)%9) * memory.GiB}
			flow.Steps = append(flow.Steps, node(fmt.Sprint("pack", pack), model, memory.GiB, time.Duration(2+pack%5)*time.Second))
		}
		session := person(flow)
		session.Card, session.Start = host%len(s.Cards), time.Duration(host)*time.Second
		s.Sessions = append(s.Sessions, session)
	}
	s.Faults = Faults{WorkerLife: 30 * time.Minute}
	return s
}
