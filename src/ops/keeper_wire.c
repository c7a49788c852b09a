/* keeper_wire.c -- one word, one index, maybe one descriptor per packet (SOCK_SEQPACKET,
 * SCM_RIGHTS). */
#include "ops/ops.h"

#include <errno.h>

struct packet {
	uint32_t word, index;
};

int keeper_send(int sock, enum keeper_word word, unsigned index, int fd)
{
	struct packet p = { .word = (uint32_t)word, .index = index };
	struct iovec iov = { .iov_base = &p, .iov_len = sizeof(p) };
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = control.room;
		m.msg_controllen = sizeof(control.room);
		control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int keeper_recv(int sock, unsigned *index, int *fd)
{
	struct packet p;
	struct iovec iov = { .iov_base = &p, .iov_len = sizeof(p) };
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.room,
			    .msg_controllen = sizeof(control.room) };
	struct cmsghdr *c;
	ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (n <= 0)
		return n < 0 ? -errno : 0;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	if (n != (ssize_t)sizeof(p))
		return -EPROTO;
	*index = p.index;
	return (int)p.word;
}
