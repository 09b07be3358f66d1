#define _GNU_SOURCE
#include "fakecard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakecard_state.h"

static int init_state(struct state *state, const struct fakecard_spec *cards, int count) {
    memset(state, 0, sizeof *state);
    for (int i = 0; i < count; i++) {
        struct card *card = &state->cards[i];
        snprintf(card->name, sizeof card->name, "%s", cards[i].name);
        card->total = cards[i].total;
        card->driver = cards[i].driver;
        card->process_local = cards[i].process_local;
        card->parent = cards[i].parent;
    }
    state->count = count;
    state->magic = FAKECARD_MAGIC;
    return FAKECARD_OK;
}

int fakecard_create(const char *path, const struct fakecard_spec *cards, int count) {
    if (count < 0 || count > FAKECARD_CARDS)
        return FAKECARD_NO_CARD;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return FAKECARD_BROKEN;
    struct state *state = MAP_FAILED;
    if (flock(fd, LOCK_EX) == 0 && ftruncate(fd, sizeof *state) == 0)
        state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state != MAP_FAILED) {
        init_state(state, cards, count);
        munmap(state, sizeof *state);
    }
    close(fd);
    return state == MAP_FAILED ? FAKECARD_BROKEN : FAKECARD_OK;
}

/* Every operation opens the file anew: an flock belongs to the open file, so this excludes other threads as well as other
 * processes, and a process that is killed in between leaves no lock behind. */
int state_open(struct opened *opened) {
    const char *path = getenv("FAKECARD_FILE");
    opened->state = NULL;
    opened->fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (opened->fd < 0)
        return FAKECARD_BROKEN;
    struct stat file;
    int locked;
    do {
        locked = flock(opened->fd, LOCK_EX);
    } while (locked != 0 && errno == EINTR);
    if (locked == 0 && fstat(opened->fd, &file) == 0 && file.st_size == sizeof *opened->state) {
        opened->state = mmap(NULL, sizeof *opened->state, PROT_READ | PROT_WRITE, MAP_SHARED, opened->fd, 0);
        if (opened->state == MAP_FAILED)
            opened->state = NULL;
    }
    if (!opened->state || opened->state->magic != FAKECARD_MAGIC) {
        state_close(opened);
        return FAKECARD_BROKEN;
    }
    return FAKECARD_OK;
}

void state_close(struct opened *opened) {
    if (opened->state)
        munmap(opened->state, sizeof *opened->state);
    if (opened->fd >= 0)
        close(opened->fd);
}

/* The start time of a live process (field 22 of its stat); 0 when it is dead or a zombie. */
static uint64_t start_time(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    char *after = strrchr(text, ')'); /* the name may hold anything */
    char state;
    uint64_t started;
    if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lu", &state, &started) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : started;
}

void state_forget_dead(struct state *state) {
    for (int i = 0; i < FAKECARD_SLOTS; i++) {
        struct slot *slot = &state->slots[i];
        if (slot->pid && start_time(slot->pid) != slot->started)
            memset(slot, 0, sizeof *slot);
    }
}

uint64_t state_taken(const struct state *state, int card) {
    uint64_t taken = state->cards[card].foreign;
    for (int i = 0; i < FAKECARD_SLOTS; i++)
        if (state->slots[i].pid && state->slots[i].card == card)
            taken += state->slots[i].bytes;
    return taken;
}

/* This process's slot on a card; made when make is set and there is room. */
static struct slot *own_slot(struct state *state, int card, int make) {
    int pid = getpid();
    struct slot *empty = NULL;
    for (int i = 0; i < FAKECARD_SLOTS; i++) {
        struct slot *slot = &state->slots[i];
        if (slot->pid == pid && slot->card == card)
            return slot;
        if (!slot->pid && !empty)
            empty = slot;
    }
    if (!make || !empty)
        return NULL;
    *empty = (struct slot){.pid = pid, .card = card, .started = start_time(pid)};
    return empty;
}

static int card_check(const struct state *state, int card) {
    if (card < 0 || card >= state->count)
        return FAKECARD_NO_CARD;
    return state->cards[card].lost ? FAKECARD_LOST : FAKECARD_OK;
}

int fakecard_take(int card, uint64_t bytes) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    struct state *state = opened.state;
    code = card_check(state, card);
    if (!code) {
        state_forget_dead(state);
        struct card *target = &state->cards[card];
        uint64_t taken = state_taken(state, card), room = target->total - target->driver;
        struct slot *slot = own_slot(state, card, 1);
        if (!slot)
            code = FAKECARD_TOO_MANY;
        else if (!target->process_local && (bytes > room || taken > room - bytes))
            code = FAKECARD_OUT_OF_MEMORY;
        else if (bytes > UINT64_MAX / 4 - taken)
            code = FAKECARD_OUT_OF_MEMORY;
        else {
            slot->bytes += bytes;
            if (taken + bytes > room && taken + bytes - room > target->overcommitted)
                target->overcommitted = taken + bytes - room;
        }
        if (slot && !slot->bytes)
            memset(slot, 0, sizeof *slot);
    }
    state_close(&opened);
    return code;
}

int fakecard_return(int card, uint64_t bytes) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    code = card_check(opened.state, card);
    struct slot *slot = code ? NULL : own_slot(opened.state, card, 0);
    if (slot) {
        slot->bytes -= bytes < slot->bytes ? bytes : slot->bytes;
        if (!slot->bytes)
            memset(slot, 0, sizeof *slot);
    }
    state_close(&opened);
    return code;
}

int fakecard_held(int card, uint64_t *bytes) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    code = card_check(opened.state, card);
    struct slot *slot = code ? NULL : own_slot(opened.state, card, 0);
    *bytes = slot ? slot->bytes : 0;
    state_close(&opened);
    return code;
}

int fakecard_free(int card, uint64_t *free_bytes, uint64_t *total) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    struct state *state = opened.state;
    code = card_check(state, card);
    if (!code) {
        state_forget_dead(state);
        struct card *target = &state->cards[card];
        struct slot *slot = own_slot(state, card, 0);
        uint64_t taken = target->process_local ? (slot ? slot->bytes : 0) : state_taken(state, card);
        *total = target->total - target->driver; /* CUDA's total is less than the card by what the driver keeps */
        *free_bytes = taken < *total ? *total - taken : 0;
    }
    state_close(&opened);
    return code;
}

int fakecard_foreign(int card, uint64_t bytes) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    if (card < 0 || card >= opened.state->count)
        code = FAKECARD_NO_CARD;
    else
        opened.state->cards[card].foreign = bytes;
    state_close(&opened);
    return code;
}

int fakecard_lose(int card, int lost) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    if (card < 0 || card >= opened.state->count)
        code = FAKECARD_NO_CARD;
    else
        opened.state->cards[card].lost = lost;
    state_close(&opened);
    return code;
}

int fakecard_fault(const char *function, int error, int hang) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    snprintf(opened.state->fault, sizeof opened.state->fault, "%s", function);
    opened.state->fault_code = error;
    opened.state->fault_hangs = hang;
    state_close(&opened);
    return code;
}

int fakecard_overcommitted(int card, uint64_t *bytes) {
    struct opened opened;
    int code = state_open(&opened);
    if (code)
        return code;
    if (card < 0 || card >= opened.state->count)
        code = FAKECARD_NO_CARD;
    else
        *bytes = opened.state->cards[card].overcommitted;
    state_close(&opened);
    return code;
}
