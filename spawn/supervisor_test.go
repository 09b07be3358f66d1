package spawn

const supervisorArgument = "test-supervisor"

func serveTestSupervisor() {}
