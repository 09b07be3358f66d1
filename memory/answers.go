package memory

// answersKept is how many answers are remembered for asks that arrive twice.
const answersKept = 1024

// answerMemory remembers the newest answers by ask.
type answerMemory struct {
	answers map[string]Answer
	order   []string // a ring
	next    int
}

func newAnswerMemory() answerMemory {
	return answerMemory{answers: make(map[string]Answer), order: make([]string, answersKept)}
}

func (a *answerMemory) add(answer Answer) {
	if _, known := a.answers[answer.Ask]; !known {
		delete(a.answers, a.order[a.next])
		a.order[a.next] = answer.Ask
		a.next = (a.next + 1) % answersKept
	}
	a.answers[answer.Ask] = answer
}

func (a *answerMemory) find(ask string) (Answer, bool) {
	answer, ok := a.answers[ask]
	return answer, ok
}
