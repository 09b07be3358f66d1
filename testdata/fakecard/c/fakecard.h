/* A card that exists only as a shared file, for tests.
 *
 * The file holds the cards and who took how many of their bytes. Every process that takes bytes is remembered by its PID
 * and start time; as soon as it is dead its bytes are free again, as a driver frees them. The file's path is in
 * FAKECARD_FILE. All sizes are bytes, all functions return 0 or a negative or NVML error code.
 */
#ifndef FAKECARD_H
#define FAKECARD_H

#include <stdint.h>

#define FAKECARD_CARDS 32
#define FAKECARD_SLOTS 8192

enum {
    FAKECARD_OK = 0,
    FAKECARD_OUT_OF_MEMORY = 2, /* CUDA's own code */
    FAKECARD_BROKEN = -1,       /* no file, or not one of ours */
    FAKECARD_NO_CARD = -2,
    FAKECARD_TOO_MANY = -3, /* processes */
    FAKECARD_LOST = -4,     /* the card fell off the bus */
};

/* One card as it is made. parent >= 0: a MIG instance of that card. */
struct fakecard_spec {
    char name[64];
    uint64_t total, driver;
    int32_t process_local; /* each process sees only its own bytes as taken, and is never refused */
    int32_t parent;
};

/* Writes a new file with these cards; an older one is replaced. */
int fakecard_create(const char *path, const struct fakecard_spec *cards, int count);

/* Takes bytes for this process: all of them or FAKECARD_OUT_OF_MEMORY. */
int fakecard_take(int card, uint64_t bytes);
/* Gives bytes of this process back; more than it holds is all it holds. */
int fakecard_return(int card, uint64_t bytes);
/* What this process holds. */
int fakecard_held(int card, uint64_t *bytes);
/* What this process reads as free and total, as cuMemGetInfo does. */
int fakecard_free(int card, uint64_t *free_bytes, uint64_t *total);

/* Bytes in nobody's name, such as a process's in another container. */
int fakecard_foreign(int card, uint64_t bytes);
/* A card that fell off the bus answers nothing until it is put back. */
int fakecard_lose(int card, int lost);
/* From now on every call of that NVML function, in every process, fails with code, or never returns. */
int fakecard_fault(const char *function, int code, int hang);
/* The most that was ever taken beyond what a process-local card has. */
int fakecard_overcommitted(int card, uint64_t *bytes);

#endif
