/* switch MEMBERS DELAY_US MBIT_PER_S LIMIT: join the network namespaces w0, w1, ... by a switch.
 *
 * Each namespace gets a device `eth0`, a card that sends at most MBIT_PER_S and receives at most as much (0: no limit in both
 * directions). A sender's packets wait in one queue for each receiver, and the queues take turns, byte by byte, as Linux's `fq`
 * and `fq_codel` do with connections; a receiver's packets pass in the order of their arrival, and are then delayed. At most
 * LIMIT packets wait in a queue; more are dropped. Build with `gcc -O2 -o switch switch.c`; run as root. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define QUEUE 16384 /* packets; a power of two */
#define MEMBERS 64
#define FRAMING 14   /* bytes of an Ethernet header */
#define QUANTUM 9014 /* bytes of a queue's turn */

typedef struct {
  uint64_t time; /* ns: when it came into the queue, or when it is due */
  int length;
  char *data;
} packet;

typedef struct {
  packet packets[QUEUE];
  unsigned head, tail;
} queue;

typedef struct {
  queue *to;          /* packets to each receiver */
  int credit[MEMBERS]; /* bytes that each queue may still send in its turn */
  int turn;           /* the queue whose turn it is */
  uint64_t free_from; /* ns: when the card has sent all that it has begun to send */
} sender;

typedef struct {
  queue due;          /* packets under way */
  uint64_t free_from; /* ns: when the card has received all that is under way */
} receiver;

static int members;
static double bytes_per_ns;
static uint64_t delay;
static unsigned limit;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t nanoseconds(int length) { return bytes_per_ns > 0 ? (uint64_t)((length + FRAMING) / bytes_per_ns) : 0; }

static packet *first(queue *packets) { return &packets->packets[packets->head % QUEUE]; }

static int device_in(int member) {
  char path[64];
  struct ifreq request = {.ifr_name = "eth0", .ifr_flags = IFF_TUN | IFF_NO_PI};
  snprintf(path, sizeof path, "/var/run/netns/w%d", member);
  int space = open(path, O_RDONLY);
  if (space < 0 || setns(space, CLONE_NEWNET)) return perror(path), -1;
  close(space);
  int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (device < 0 || ioctl(device, TUNSETIFF, &request)) return perror("tun"), -1;
  return device;
}

/* Return the queue that sends next, or -1 if all are empty. */
static int next_queue(sender *from) {
  int waiting = 0;
  for (int to = 0; to < members; to++) waiting |= from->to[to].head != from->to[to].tail;
  while (waiting) {
    queue *packets = &from->to[from->turn];
    if (packets->head != packets->tail && from->credit[from->turn] >= first(packets)->length) return from->turn;
    if (packets->head == packets->tail) from->credit[from->turn] = 0;
    from->turn = (from->turn + 1) % members;
    from->credit[from->turn] += QUANTUM;
  }
  return -1;
}

/* Send what a card can have begun to send by `time`; return when it can send more, ns. */
static uint64_t send_out(sender *from, receiver *receivers, uint64_t time) {
  while (from->free_from <= time) {
    int to = next_queue(from);
    if (to < 0) return UINT64_MAX;
    packet *sent = first(&from->to[to]);
    uint64_t begin = sent->time > from->free_from ? sent->time : from->free_from;
    from->to[to].head++;
    from->credit[to] -= sent->length;
    from->free_from = begin + nanoseconds(sent->length);
    receiver *at = &receivers[to];
    uint64_t received = at->free_from + nanoseconds(sent->length);
    if (received < from->free_from) received = from->free_from;
    if (at->due.tail - at->due.head >= QUEUE || received > from->free_from + limit * nanoseconds(QUANTUM)) {
      free(sent->data); /* more than LIMIT packets wait for this receiver */
      continue;
    }
    at->free_from = received;
    at->due.packets[at->due.tail++ % QUEUE] = (packet){received + delay, sent->length, sent->data};
  }
  return from->free_from;
}

/* Hand over the packets that are due by `time`; return when the next one is, ns. */
static uint64_t deliver(receiver *to, int device, uint64_t time) {
  for (; to->due.head != to->due.tail && first(&to->due)->time <= time; to->due.head++) {
    packet *done = first(&to->due);
    if (write(device, done->data, done->length) < 0) perror("write");
    free(done->data);
  }
  return to->due.head != to->due.tail ? first(&to->due)->time : UINT64_MAX;
}

int main(int count, char **words) {
  if (count != 5) return fputs("switch MEMBERS DELAY_US MBIT_PER_S LIMIT\n", stderr), 2;
  members = atoi(words[1]);
  delay = strtoull(words[2], NULL, 10) * 1000;
  bytes_per_ns = atof(words[3]) / 8e3;
  limit = atoi(words[4]);
  struct pollfd devices[MEMBERS];
  sender *senders = calloc(members, sizeof(sender));
  receiver *receivers = calloc(members, sizeof(receiver));
  static char buffer[70000];
  for (int member = 0; member < members; member++) {
    senders[member].to = calloc(members, sizeof(queue));
    devices[member] = (struct pollfd){.fd = device_in(member), .events = POLLIN};
    if (devices[member].fd < 0) return 1;
  }
  for (;;) {
    uint64_t time = now(), next = time + 100000000;
    for (int member = 0; member < members; member++) {
      uint64_t ready = send_out(&senders[member], receivers, time);
      if (ready < next) next = ready;
    }
    for (int member = 0; member < members; member++) {
      uint64_t due = deliver(&receivers[member], devices[member].fd, time);
      if (due < next) next = due;
    }
    time = now();
    struct timespec wait = {.tv_nsec = next > time ? next - time : 0};
    if (ppoll(devices, members, &wait, NULL) <= 0) continue;
    for (int member = 0; member < members; member++)
      for (int packets = 0; (devices[member].revents & POLLIN) && packets < 64; packets++) {
        int length = read(devices[member].fd, buffer, sizeof buffer);
        if (length <= 0) break;
        int to = (unsigned char)buffer[19] - 1; /* addresses are 10.0.0.1, ... */
        if ((buffer[0] >> 4) != 4 || to < 0 || to >= members) continue;
        queue *waiting = &senders[member].to[to];
        if (waiting->tail - waiting->head >= limit) continue;
        char *data = malloc(length);
        memcpy(data, buffer, length);
        waiting->packets[waiting->tail++ % QUEUE] = (packet){now(), length, data};
      }
  }
}
