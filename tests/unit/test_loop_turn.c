/* test_loop_turn.c -- the turn of loop/loop.h: tasks, alarms, clocks, mail from other threads,
 * faults put in (loop/fault.h), and what start-up does where locked memory is short. */
#include "loop_world.h"

#include <semaphore.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* --- tasks, alarms, clock --- */
struct note {
	struct task task;
	struct alarm alarm;
	struct mail mail;
	struct world *w;
	struct note *soon, *late, *off;
	char name;
};

static char noted[256];

static void note_down(char c)
{
	assert_true(in_turn);
	noted[strlen(noted)] = c;
}

static void run_note(struct task *t)
{
	struct note *n = container_of(t, struct note, task);

	note_down(n->name);
	if (n->soon)
		loop_soon(n->w->loop, &n->soon->task);
	if (n->late)
		loop_late(n->w->loop, &n->late->task);
	if (n->off)
		loop_task_off(n->w->loop, &n->off->task);
}

static void ring_note(struct alarm *a)
{
	note_down(container_of(a, struct note, alarm)->name);
}

static void open_note(struct loop *loop, struct mail *m)
{
	(void)loop;
	note_down(container_of(m, struct note, mail)->name);
}

static void notes(struct note *n, struct world *w, const char *names)
{
	memset(noted, 0, sizeof(noted));
	for (; *names; names++, n++) {
		memset(n, 0, sizeof(*n));
		n->w = w;
		n->name = *names;
		n->mail.open = open_note;
		task_init(&n->task, run_note);
		alarm_init(&n->alarm, ring_note);
	}
}

static void tasks_in_order(void **state)
{
	struct world *w = the_world(state);
	struct note n[6];

	notes(n, w, "abcdef");
	n[0].soon = &n[2]; /* a queues c: runs this turn */
	n[3].late = &n[4]; /* d, late, queues e late: next turn */
	n[3].soon = &n[5]; /* and f soon: next turn */
	loop_late(w->loop, &n[3].task);
	loop_soon(w->loop, &n[0].task);
	loop_soon(w->loop, &n[1].task);
	loop_soon(w->loop, &n[0].task); /* queued already */
	assert_true(task_queued(&n[0].task));
	turn(w, 10000); /* does not sleep */
	assert_string_equal(noted, "abcd");
	assert_false(task_queued(&n[0].task));
	turn(w, 10000);
	assert_string_equal(noted, "abcdfe");
	assert_int_equal(turn(w, 0), 0);
}

static void tasks_taken_off(void **state)
{
	struct world *w = the_world(state);
	struct note n[4];

	for (int out = 0; out < 4; out++) {
		char want[5] = "abcd";

		notes(n, w, "abcd");
		for (int i = 0; i < 4; i++)
			loop_soon(w->loop, &n[i].task);
		loop_task_off(w->loop, &n[out].task);
		loop_task_off(w->loop, &n[out].task);
		assert_false(task_queued(&n[out].task));
		memmove(want + out, want + out + 1, 4 - (size_t)out);
		turn(w, 0);
		assert_string_equal(noted, want);
	}
	notes(n, w, "abcd"); /* the last of the late ones, taken off by the first */
	n[0].off = &n[2];
	n[0].late = &n[3];
	for (int i = 0; i < 3; i++)
		loop_late(w->loop, &n[i].task);
	turn(w, 0);
	turn(w, 0);
	assert_string_equal(noted, "abd");
}

static void alarms_ring(void **state)
{
	struct world *w = the_world(state);
	struct note n[3];
	uint64_t t0, t;

	notes(n, w, "abc");
	turn(w, 0);
	t0 = loop_now_us(w->loop);
	loop_alarm(w->loop, &n[0].alarm, 20);
	loop_alarm(w->loop, &n[1].alarm, 10);
	loop_alarm(w->loop, &n[2].alarm, 5);
	loop_alarm_off(&n[2].alarm);
	for (int i = 0; i < 100 && strlen(noted) < 2; i++)
		turn(w, 60000); /* wakes for the alarm */
	t = loop_now_us(w->loop);
	assert_string_equal(noted, "ba");
	assert_true(t - t0 >= 20000);
	assert_true(t - t0 < 10000000);
}

static void turn_order(void **state)
{
	struct world *w = the_world(state);
	struct note n[4];
	struct rec in;
	int sv[2];

	notes(n, w, "mast");
	tcp_pair(sv);
	put(sv[1], "x", 1);
	start_recv(&in, w, sv[0], SEG_SMALL, 0);
	assert_true(loop_post(w->loop, &n[0].mail));
	loop_alarm(w->loop, &n[1].alarm, 0);
	loop_soon(w->loop, &n[2].task);
	loop_late(w->loop, &n[3].task);
	/* the alarm is due */
	for (uint64_t until = loop_now_us(w->loop) + 2000; loop_now_us(w->loop) < until;) {
		struct timespec ts = { .tv_nsec = 3000000 };

		nanosleep(&ts, NULL);
		turn(w, 0);
	}
	assert_string_equal(noted, "mast");
	turn_until(w, in.n_bytes == 1);
	end_op(w, &in);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void clocks_and_randomness(void **state)
{
	struct world *w = the_world(state);
	uint8_t a[300], b[300];
	struct str d;
	struct tm tm;
	char want[64];
	time_t s;

	turn(w, 0);
	assert_true(llabs(loop_wall_us(w->loop) / 1000000 - (int64_t)time(NULL)) <= 1);
	assert_int_equal(loop_now_ms(w->loop), loop_now_us(w->loop) / 1000);
	s = (time_t)(loop_wall_us(w->loop) / 1000000);
	strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&s, &tm));
	d = loop_http_date(w->loop);
	assert_int_equal(d.n, 29);
	assert_memory_equal(d.p, want, 29);
	loop_random(w->loop, a, sizeof(a));
	loop_random(w->loop, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
}

/* --- mail --- */
#define MAILS   20000
#define POSTERS 4
struct letter {
	struct mail mail;
	int from, nr;
};

static struct letter letters[POSTERS][MAILS];
static int last_nr[POSTERS], n_opened;
static struct loop *letter_loop;
static sem_t answered;

static void open_letter(struct loop *loop, struct mail *m)
{
	struct letter *l = container_of(m, struct letter, mail);

	assert_ptr_equal(loop, letter_loop);
	assert_int_equal(l->nr, last_nr[l->from] + 1); /* in order, none twice */
	last_nr[l->from] = l->nr;
	n_opened++;
	if (l->nr % 16 == 0)
		sem_post(&answered);
}

static void *post_letters(void *arg)
{
	struct letter *l = arg;

	for (int i = 0; i < MAILS; i++) {
		if (!loop_post(letter_loop, &l[i].mail))
			return (void *)1;
		if ((i + 1) % 16 == 0) /* now and then the loop falls asleep */
			sem_wait(&answered);
	}
	return NULL;
}

static void mail_from_threads(void **state)
{
	struct world *w = the_world(state);
	pthread_t t[POSTERS];

	sem_init(&answered, 0, 0);
	letter_loop = w->loop;
	n_opened = 0;
	for (int k = 0; k < POSTERS; k++) {
		last_nr[k] = 0;
		for (int i = 0; i < MAILS; i++)
			letters[k][i] =
				(struct letter){ .mail.open = open_letter, .from = k, .nr = i + 1 };
	}
	for (int k = 0; k < POSTERS; k++)
		assert_int_equal(pthread_create(&t[k], NULL, post_letters, letters[k]), 0);
	while (n_opened < POSTERS * MAILS)
		turn(w, 600000); /* a lost wake would hang here until the suite's timeout */
	for (int k = 0; k < POSTERS; k++) {
		void *rc;

		pthread_join(t[k], &rc);
		assert_null(rc);
	}
	sem_destroy(&answered);
}

static void mail_is_opened_at_the_end(void **state)
{
	struct world *w = the_world(state);
	struct note n[2];

	notes(n, w, "ab");
	assert_true(loop_post(w->loop, &n[0].mail));
	assert_true(loop_post(w->loop, &n[1].mail));
	in_turn = true;
	loop_free(&w->loop);
	in_turn = false;
	assert_string_equal(noted, "ab");
}

/* --- faults --- */
static void fault_nth_send(void **state)
{
	struct world *w = the_world(state);
	static const struct fault_rule rule = { .kind = OP_SEND, .nth = 2, .res = -ECONNRESET };
	struct iovec iov = { .iov_base = (void *)(uintptr_t) "abc", .iov_len = 3 };
	struct rec out;
	int sv[2];

	with_rules(w, &rule, 1);
	tcp_pair(sv);
	rec_init(&out, w, on_done);
	for (int i = 1; i <= 3; i++) {
		loop_send(w->loop, &out.op, sv[0], &iov, 1);
		turn_until(w, op_idle(&out.op));
		assert_int_equal(out.res, i == 2 ? -ECONNRESET : 3);
	}
	assert_int_equal(fault_seen(w->loop, OP_SEND), 3);
	assert_int_equal(fault_hits(w->loop), 1);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

static void fault_storm_short_late(void **state)
{
	struct world *w = the_world(state);
	static const struct fault_rule rules[] = {
		{ .kind = OP_RECV, .nth = 1, .times = 5, .res = -ENOBUFS },
		{ .kind = OP_SEND, .nth = 1, .times = 100, .send_max = 4, .delay = 3 },
		{ .kind = FAULT_SOCKET, .nth = 2, .res = -EMFILE },
		{ .kind = OP_POLL, .nth = 1, .delay = 1000 },
	};
	struct iovec iov[2] = { { .iov_base = (void *)(uintptr_t) "abc", .iov_len = 3 },
				{ .iov_base = (void *)(uintptr_t) "def", .iov_len = 3 } };
	struct rec in, out, pol;
	char c[8];
	int sv[2], fd, turns = 0;

	with_rules(w, rules, 4);
	tcp_pair(sv);
	start_recv(&in, w, sv[0], SEG_SMALL, 16);
	for (int i = 0; i < 5; i++) {
		turn_until(w, op_idle(&in.op));
		assert_int_equal(in.res, -ENOBUFS);
		loop_recv(w->loop, &in.op, sv[0], SEG_SMALL);
	}
	put(sv[1], "x", 1);
	turn_until(w, in.n_bytes == 1);
	rec_init(&out, w, on_done);
	loop_send(w->loop, &out.op, sv[0], iov, 2);
	for (; !op_idle(&out.op); turns++)
		turn(w, 60000); /* never sleeps over a held op */
	assert_true(turns >= 3);
	assert_int_equal(out.res, 4);
	assert_int_equal(read(sv[1], c, sizeof(c)), 4);
	assert_memory_equal(c, "abcd", 4);
	fd = loop_socket(w->loop, AF_INET, SOCK_STREAM);
	assert_true(fd >= 0);
	loop_close(w->loop, fd);
	assert_int_equal(loop_socket(w->loop, AF_INET, SOCK_STREAM), -EMFILE);
	rec_init(&pol, w, on_done);
	loop_poll(w->loop, &pol.op, sv[0], POLLOUT);
	turn(w, 0);
	assert_int_equal(pol.op.state, OP_ARMED);
	loop_cancel(w->loop, &pol.op); /* while it is held */
	turn_until(w, op_idle(&pol.op));
	assert_int_equal(pol.res, -ECANCELED);
	end_op(w, &in);
	loop_close(w->loop, sv[0]);
	close(sv[1]);
}

/* --- start-up, without a world --- */
static rlim_t memlock;

/* In a child whose locked memory is limited, as a user that the limit holds for. */
static void in_child(int (*body)(void))
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		struct rlimit r = { .rlim_cur = memlock, .rlim_max = memlock };

		if (setrlimit(RLIMIT_MEMLOCK, &r) || (geteuid() == 0 && setuid(65533)))
			_exit(99);
		_exit(body());
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
}

static int auto_falls_back(void)
{
	struct budget budget = { .max = UINT64_MAX };
	struct loop_params par = { .io = LOOP_AUTO, .budget = &budget };
	char why[128];
	struct loop *loop = loop_new(&par, why);
	int rc = !loop || strcmp(loop_io_name(loop), "epoll") ||
		 strncmp(why, "epoll: io_uring_setup: ", 23);

	loop_free(&loop);
	par.io = LOOP_URING;
	loop = loop_new(&par, why);
	return rc ? 1 : loop ? 2 : strncmp(why, "io_uring_setup: ", 16) ? 3 : 0;
}

static void falls_back_to_epoll(void **state)
{
	(void)state;
	if (!uring_works())
		skip();
	memlock = 0;
	in_child(auto_falls_back);
}

/* 1,500 polls that are ready at once, through a ring of 256 entries and a completion queue of a few
 * hundred: it overflows. */
static int small_ring(void)
{
	enum { N = 1500 };
	static struct rec pol[N];
	struct world w = { .conf = &configs[0], .budget.max = UINT64_MAX };
	static int fd[N];
	int p[2];

	w.loop = make_loop(&w);
	if (!w.loop || strstr(w.why, "ring 2048"))
		return 2;
	if (pipe2(p, O_NONBLOCK))
		return 3;
	for (int i = 0; i < N; i++) {
		rec_init(&pol[i], &w, on_done);
		fd[i] = dup(p[1]);
		if (fd[i] < 0)
			return 4;
		loop_poll(w.loop, &pol[i].op, fd[i], POLLOUT);
	}
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < 1000 && !op_idle(&pol[i].op); k++)
			turn(&w, 5);
		if (!op_idle(&pol[i].op) || pol[i].res != POLLOUT || pol[i].n != 1)
			return 5;
		loop_close(w.loop, fd[i]);
	}
	loop_free(&w.loop);
	return 0;
}

static void small_ring_overflows(void **state)
{
	(void)state;
	if (!uring_works())
		skip();
	memlock = 64 * 1024;
	in_child(small_ring);
}

/* What a burst of one kind of memory has left behind is there for another kind. */
static void pools_give_way(void **state)
{
	struct world *w = the_world(state);
	struct seg *large[20];
	struct slab slab;
	void *p;

	for (unsigned i = 0; i < ARRAY_LEN(large); i++) {
		large[i] = seg_get(loop_segs(w->loop, SEG_LARGE));
		assert_non_null(large[i]);
	}
	w->budget.max = atomic_load(&w->budget.used);
	slab_init(&slab, "test", 4096, loop_budget(w->loop));
	turn(w, 0);
	assert_null(slab_get(&slab));
	for (unsigned i = 0; i < ARRAY_LEN(large); i++)
		seg_drop(&large[i]);
	for (int i = 0; i < 2000 && !(p = slab_get(&slab)); i++)
		turn(w, 5); /* it is looked for ten times a second */
	assert_non_null(p);
	assert_true(atomic_load(&w->budget.used) <= w->budget.max);
	slab_put(&slab, p);
	slab_close(&slab);
}

static const struct row rows[] = {
	ROW(tasks_in_order),
	ROW(tasks_taken_off),
	ROW(alarms_ring),
	ROW(turn_order),
	ROW(clocks_and_randomness),
	ROW(mail_from_threads),
	ROW(mail_is_opened_at_the_end),
	ROW(pools_give_way),
	ROW(fault_nth_send),
	ROW(fault_storm_short_late),
};

static const struct row bare[] = {
	ROW(falls_back_to_epoll),
	ROW(small_ring_overflows),
};

int main(void)
{
	return run_rows("loop_turn", rows, ARRAY_LEN(rows), bare, ARRAY_LEN(bare));
}
