/* switch MEMBERS DELAY_US MBIT_PER_S LIMIT: join the network namespaces w0, w1, ... by a switch.
 *
 * Each namespace gets a device `eth0`; the packets that it receives are shaped to MBIT_PER_S (0: not at all) and then delayed.
 * At most LIMIT packets wait for one receiver; more are dropped. Build with `gcc -O2 -o switch switch.c`; run as root. */
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

#define QUEUE 65536
#define MEMBERS 64
#define FRAMING 14 /* bytes of an Ethernet header */

typedef struct {
  uint64_t due; /* ns */
  int length;
  char *data;
} packet;

typedef struct {
  packet queue[QUEUE];
  unsigned head, tail;
  uint64_t free_from; /* ns: when the link has sent all packets so far */
} port;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

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

/* Hand over the packets that are due; return when the next one is, ns. */
static uint64_t deliver(port *ports, struct pollfd *devices, int members) {
  uint64_t time = now(), next = time + 100000000;
  for (int member = 0; member < members; member++) {
    port *to = &ports[member];
    for (; to->head != to->tail && to->queue[to->head % QUEUE].due <= time; to->head++) {
      packet *first = &to->queue[to->head % QUEUE];
      if (write(devices[member].fd, first->data, first->length) < 0) perror("write");
      free(first->data);
    }
    if (to->head != to->tail && to->queue[to->head % QUEUE].due < next) next = to->queue[to->head % QUEUE].due;
  }
  return next;
}

int main(int count, char **words) {
  if (count != 5) return fputs("switch MEMBERS DELAY_US MBIT_PER_S LIMIT\n", stderr), 2;
  int members = atoi(words[1]);
  uint64_t delay = strtoull(words[2], NULL, 10) * 1000;
  double bytes_per_ns = atof(words[3]) / 8e3;
  unsigned limit = atoi(words[4]);
  struct pollfd devices[MEMBERS];
  port *ports = calloc(members, sizeof(port));
  static char buffer[70000];
  for (int member = 0; member < members; member++) {
    devices[member] = (struct pollfd){.fd = device_in(member), .events = POLLIN};
    if (devices[member].fd < 0) return 1;
  }
  for (;;) {
    uint64_t next = deliver(ports, devices, members), time = now();
    struct timespec wait = {.tv_nsec = next > time ? next - time : 0};
    if (ppoll(devices, members, &wait, NULL) <= 0) continue;
    for (int member = 0; member < members; member++)
      for (int packets = 0; (devices[member].revents & POLLIN) && packets < 64; packets++) {
        int length = read(devices[member].fd, buffer, sizeof buffer);
        if (length <= 0) break;
        int receiver = (unsigned char)buffer[19] - 1; /* addresses are 10.0.0.1, ... */
        if ((buffer[0] >> 4) != 4 || receiver < 0 || receiver >= members) continue;
        port *to = &ports[receiver];
        if (to->tail - to->head >= limit) continue;
        uint64_t begin = now();
        if (to->free_from > begin) begin = to->free_from;
        to->free_from = begin + (bytes_per_ns > 0 ? (uint64_t)((length + FRAMING) / bytes_per_ns) : 0);
        packet *last = &to->queue[to->tail++ % QUEUE];
        *last = (packet){.due = to->free_from + delay, .length = length, .data = malloc(length)};
        memcpy(last->data, buffer, length);
      }
  }
}
