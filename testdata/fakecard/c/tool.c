/* Makes and changes fake cards, and holds bytes of them as a process of its own.
 *
 *   fakecard create NAME:TOTAL:DRIVER[:local][:mig=PARENT]...
 *   fakecard foreign CARD BYTES | lose CARD | restore CARD | fault FUNCTION hang|CODE | clear
 *   fakecard hold        reads "take CARD BYTES", "return CARD BYTES", "free CARD", "over CARD" from standard input and
 *                        answers "ok [FREE TOTAL | BYTES]" or "error CODE" a line; ends at the end of its input
 *
 * The file is the one in FAKECARD_FILE.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecard.h"

static int usage(void) {
    fputs("fakecard create NAME:TOTAL:DRIVER[:local][:mig=PARENT]... | foreign CARD BYTES | lose CARD | restore CARD |\n"
          "         fault FUNCTION hang|CODE | clear | hold        (FAKECARD_FILE names the file)\n", stderr);
    return 2;
}

static int create(int count, char **texts) {
    struct fakecard_spec cards[FAKECARD_CARDS];
    memset(cards, 0, sizeof cards);
    if (count > FAKECARD_CARDS || !getenv("FAKECARD_FILE"))
        return FAKECARD_NO_CARD;
    for (int i = 0; i < count; i++) {
        char *rest = texts[i];
        cards[i].parent = -1;
        for (int field = 0; rest; field++) {
            char *text = strsep(&rest, ":");
            if (field == 0)
                snprintf(cards[i].name, sizeof cards[i].name, "%s", text);
            else if (field == 1)
                cards[i].total = strtoull(text, NULL, 10);
            else if (field == 2)
                cards[i].driver = strtoull(text, NULL, 10);
            else if (strcmp(text, "local") == 0)
                cards[i].process_local = 1;
            else if (strncmp(text, "mig=", 4) == 0)
                cards[i].parent = atoi(text + 4);
            else
                return FAKECARD_NO_CARD;
        }
    }
    return fakecard_create(getenv("FAKECARD_FILE"), cards, count);
}

static void hold(void) {
    char line[256], word[16];
    while (fgets(line, sizeof line, stdin)) {
        int card = 0, code = FAKECARD_NO_CARD;
        uint64_t bytes = 0, total = 0;
        int found = sscanf(line, "%15s %d %" SCNu64, word, &card, &bytes);
        if (found == 3 && strcmp(word, "take") == 0)
            code = fakecard_take(card, bytes);
        else if (found == 3 && strcmp(word, "return") == 0)
            code = fakecard_return(card, bytes);
        else if (found == 2 && strcmp(word, "free") == 0)
            code = fakecard_free(card, &bytes, &total);
        else if (found == 2 && strcmp(word, "over") == 0)
            code = fakecard_overcommitted(card, &bytes);
        if (code)
            printf("error %d\n", code);
        else if (found == 3)
            printf("ok\n");
        else if (total)
            printf("ok %" PRIu64 " %" PRIu64 "\n", bytes, total);
        else
            printf("ok %" PRIu64 "\n", bytes);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    int code;
    if (strcmp(command, "create") == 0)
        code = create(argc - 2, argv + 2);
    else if (strcmp(command, "foreign") == 0 && argc == 4)
        code = fakecard_foreign(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    else if (strcmp(command, "lose") == 0 && argc == 3)
        code = fakecard_lose(atoi(argv[2]), 1);
    else if (strcmp(command, "restore") == 0 && argc == 3)
        code = fakecard_lose(atoi(argv[2]), 0);
    else if (strcmp(command, "fault") == 0 && argc == 4)
        code = fakecard_fault(argv[2], atoi(argv[3]), strcmp(argv[3], "hang") == 0);
    else if (strcmp(command, "clear") == 0 && argc == 2)
        code = fakecard_fault("", 0, 0);
    else if (strcmp(command, "hold") == 0 && argc == 2) {
        hold();
        code = 0;
    } else
        return usage();
    if (code)
        fprintf(stderr, "fakecard %s: error %d\n", command, code);
    return code ? 1 : 0;
}
