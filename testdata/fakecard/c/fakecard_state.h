/* What lies in the shared file. Private to the library. */
#ifndef FAKECARD_STATE_H
#define FAKECARD_STATE_H

#include "fakecard.h"

#define FAKECARD_MAGIC 0x3164726163656b66ull

struct card {
    char name[64];
    uint64_t total, driver, foreign, overcommitted;
    int32_t process_local, parent, lost, unused;
};

struct slot {
    int32_t pid, card;
    uint64_t started, bytes;
};

struct state {
    uint64_t magic;
    int32_t count, fault_code, fault_hangs, unused;
    char fault[64]; /* the NVML function that fails or hangs */
    struct card cards[FAKECARD_CARDS];
    struct slot slots[FAKECARD_SLOTS];
};

/* The file, mapped and locked. */
struct opened {
    int fd;
    struct state *state;
};

int state_open(struct opened *opened);
void state_close(struct opened *opened);
void state_forget_dead(struct state *state);
uint64_t state_taken(const struct state *state, int card);

#endif
