/*
 * replay.c -- runs committed inputs through a fuzz harness, without libFuzzer.
 *
 * The arguments are files or folders (a folder's files, not its subfolders).  Prints TAP: one
 * test point per harness, because the number of seeds says nothing about the number of things
 * that are tested.  An input that makes the harness crash ends the process; the runner counts
 * that as a failure and the last "# file" line on standard error names the input.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Returns the number of inputs that ran, or -1 when the file cannot be read. */
static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *data;
	size_t len;

	if (!f)
		return -1;
	if (fstat(fileno(f), &st) != 0) {
		fclose(f);
		return -1;
	}
	/* Exactly as long as the input, so that a sanitizer sees the first byte read beyond it. */
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	if (!data)
		abort();
	len = fread(data, 1, (size_t)st.st_size, f);
	fclose(f);
	fprintf(stderr, "# %s\n", path);
	LLVMFuzzerTestOneInput(data, len);
	free(data);
	return 1;
}

static int replay_folder(const char *path)
{
	struct dirent **names;
	int n = scandir(path, &names, NULL, alphasort);
	int ran = 0;

	if (n < 0)
		return -1;
	for (int i = 0; i < n; i++) {
		char file[4096];
		struct stat st;

		snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
		if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && replay_file(file) > 0)
			ran++;
		free(names[i]);
	}
	free(names);
	return ran;
}

int main(int argc, char **argv)
{
	int ran = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;
		int n = -1;

		if (stat(argv[i], &st) == 0)
			n = S_ISDIR(st.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i]);
		if (n < 0)
			printf("# cannot read %s\n", argv[i]);
		else
			ran += n;
	}
	printf("1..1\n%s 1 - replays %d seeds\n", ran > 0 ? "ok" : "not ok", ran);
	return ran > 0 ? 0 : 1;
}
