/* main.c -- the command line. */
#include "base/log.h"
#include "base/panic.h"
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CULVERT_VERSION
#define CULVERT_VERSION "0.1.0"
#endif

#define DEFAULT_FILE "/etc/culvert/culvert.yaml"

enum exit_code { EXIT_CLEAN = 0, EXIT_START = 1, EXIT_USAGE = 2 };

static const char help[] =
	"culvert " CULVERT_VERSION " - forward proxy, reverse proxy and load balancer in one\n"
	"\n"
	"  culvert run [-c FILE]    run in the foreground\n"
	"  culvert check [-c FILE] [--print] [--strict]\n"
	"                           read and check a configuration, change nothing\n"
	"  culvert init [FILE]      write a commented starter file (culvert.yaml)\n"
	"  culvert demo             the built-in demo, no file needed\n"
	"  culvert --version | --help\n"
	"\n"
	"  -c FILE    the configuration; default " DEFAULT_FILE "\n"
	"  --print    show the effective configuration with its defaults, secrets hidden\n"
	"  --strict   warnings are errors\n"
	"\n"
	"exit codes\n"
	"  0  clean\n"
	"  1  the start failed (a restart may help)\n"
	"  2  usage or configuration\n"
	"  3  the drain's deadline, or a second signal, cut something\n"
	"signals\n"
	"  TERM INT QUIT  drain: readiness first, then the delay, then accepting stops;\n"
	"                 what runs is finished; a second one ends at once\n"
	"  USR1           open the log files again\n"
	"  HUP            reload (not in this version: one log line)\n";

struct options {
	const char *file;
	bool print, strict;
};

static int usage(const char *what, const char *arg)
{
	fprintf(stderr, "culvert: %s%s%s\ntry: culvert --help\n", what, arg ? " " : "",
		arg ? arg : "");
	return EXIT_USAGE;
}

static int parse_options(int argc, char **argv, bool checking, struct options *o)
{
	o->file = DEFAULT_FILE;
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "-c") == 0 && i + 1 < argc)
			o->file = argv[++i];
		else if (strcmp(argv[i], "-c") == 0)
			return usage("-c needs a file", NULL);
		else if (checking && strcmp(argv[i], "--print") == 0)
			o->print = true;
		else if (checking && strcmp(argv[i], "--strict") == 0)
			o->strict = true;
		else
			return usage("unknown argument", argv[i]);
	}
	return EXIT_CLEAN;
}

static void show(FILE *to, struct conf_report *r)
{
	if (r->text)
		fwrite(r->text, 1, r->n, to);
	free(r->text);
	r->text = NULL;
}

static int run(int argc, char **argv)
{
	struct options o = { 0 };
	struct conf_report r = { 0 };
	struct config *c;

	if (parse_options(argc, argv, false, &o) != EXIT_CLEAN)
		return EXIT_USAGE;
	c = config_load(o.file, &r);
	show(stderr, &r);
	if (!c)
		return EXIT_USAGE;
	return keeper_run(c, CULVERT_VERSION);
}

static int check(int argc, char **argv)
{
	struct options o = { 0 };
	struct conf_report r = { 0 };
	struct config *c;
	bool good;

	if (parse_options(argc, argv, true, &o) != EXIT_CLEAN)
		return EXIT_USAGE;
	c = config_load(o.file, &r);
	show(stderr, &r);
	good = c && !(o.strict && r.warnings);
	if (good && o.print)
		config_print(c, STDOUT_FILENO);
	else if (good)
		config_summary(c, STDOUT_FILENO);
	config_free(&c);
	return good ? EXIT_CLEAN : EXIT_USAGE;
}

static int init(int argc, char **argv)
{
	const char *file = argc > 0 ? argv[0] : "culvert.yaml";
	int fd;

	if (argc > 1 || file[0] == '-')
		return usage("init takes the name of the new file", NULL);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0) {
		fprintf(stderr, "culvert: %s: %s\n", file, strerror(errno));
		return EXIT_START;
	}
	config_starter(fd);
	close(fd);
	printf("wrote %s; try: culvert check -c %s\n", file, file);
	return EXIT_CLEAN;
}

static int demo(int argc, char **argv)
{
	(void)argv;
	return argc ? usage("demo takes no arguments", NULL)
		    : demo_run(CULVERT_VERSION, keeper_run);
}

static int later(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return usage("status, reload, drain and stop are not in this version; use the signals",
		     NULL);
}

static int print_help(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fputs(help, stdout);
	return EXIT_CLEAN;
}

static int print_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	puts("culvert " CULVERT_VERSION);
	return EXIT_CLEAN;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv); /* the arguments behind the name */
} commands[] = {
	{ "run", run },          { "check", check },     { "init", init },
	{ "demo", demo },        { "status", later },    { "reload", later },
	{ "drain", later },      { "stop", later },      { "--help", print_help },
	{ "-h", print_help },    { "help", print_help }, { "--version", print_version },
	{ "-V", print_version },
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return print_help(0, NULL);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 2, argv + 2);
	return usage("unknown command", argv[1]);
}
