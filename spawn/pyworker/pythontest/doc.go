// Package pythontest runs the project's Python unittests from Go tests: it finds the CPythons of this machine, makes
// the virtual environments that some tests need, and runs a folder of tests with one of them.
//
// Only tests import it. It imports nothing of this module. Environments are made once and kept in the user's cache
// folder, named by what is in them. A missing interpreter or package index fails the test with a sentence.
package pythontest
