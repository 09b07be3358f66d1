//go:build unix

package spawn

func (t *Tree) processes() ([]Process, error) {
	members, err := t.members()
	if err != nil {
		return nil, err
	}
	processes := make([]Process, 0, len(members))
	for _, member := range members {
		processes = append(processes, member.identity())
	}
	return processes, nil
}
