// switch N DELAY_US RATE_MBIT(0: none) LIMIT: tun device eth0 in each netns w0..; each receiver delays and shapes what it gets
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sched.h>
#include <poll.h>
#include <time.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <signal.h>
static volatile int stop; static void h(int x){stop=1;}
#include <net/if.h>
#include <linux/if_tun.h>
#define CAP 65536
typedef struct { uint64_t when; int len; char *data; } pkt;
typedef struct { pkt q[CAP]; unsigned head, tail; uint64_t last; uint64_t dropped, sent, bytes; unsigned most; } port;
static uint64_t now(void){ struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); return t.tv_sec*1000000000ull+t.tv_nsec; }
int main(int c, char **v){
  int n=atoi(v[1]); uint64_t delay=atoll(v[2])*1000ull; double rate=atof(v[3])*1e6/8/1e9; unsigned limit=atoi(v[4]);
  struct pollfd fd[64]; port *p=calloc(n,sizeof(port));
  for(int i=0;i<n;i++){ char path[64]; sprintf(path,"/var/run/netns/w%d",i); int ns=open(path,O_RDONLY); if(ns<0||setns(ns,CLONE_NEWNET)){perror(path);return 1;}
    int t=open("/dev/net/tun",O_RDWR|O_NONBLOCK); struct ifreq r; memset(&r,0,sizeof r); strcpy(r.ifr_name,"eth0"); r.ifr_flags=IFF_TUN|IFF_NO_PI; if(ioctl(t,TUNSETIFF,&r)){perror("tun");return 1;}
    fd[i].fd=t; fd[i].events=POLLIN; close(ns);}
  puts("ready"); fflush(stdout);
  static char buf[70000];
  signal(SIGTERM,h);
  for(;;){
    if(stop){ for(int i=0;i<n;i++) printf("port %d sent %lu bytes %lu dropped %lu most %u\n",i,p[i].sent,p[i].bytes,p[i].dropped,p[i].most); return 0; }
    uint64_t t=now(), next=~0ull;
    for(int i=0;i<n;i++){ port*o=&p[i]; while(o->head!=o->tail && o->q[o->head%CAP].when<=t){ pkt*k=&o->q[o->head%CAP]; if(write(fd[i].fd,k->data,k->len)<0) o->dropped++; free(k->data); o->head++; o->sent++; o->bytes+=k->len; }
      if(o->head!=o->tail && o->q[o->head%CAP].when<next) next=o->q[o->head%CAP].when; }
    struct timespec w; uint64_t gap= next==~0ull?100000000ull:(next>now()?next-now():0); w.tv_sec=gap/1000000000ull; w.tv_nsec=gap%1000000000ull;
    if(ppoll(fd,n,&w,NULL)<=0) continue;
    for(int i=0;i<n;i++) if(fd[i].revents&POLLIN) for(int k=0;k<64;k++){ int len=read(fd[i].fd,buf,sizeof buf); if(len<=0) break; if((buf[0]>>4)!=4) continue; int to=(unsigned char)buf[19]-1; if(to<0||to>=n) continue; port*o=&p[to];
      if(o->tail-o->head>=limit){ o->dropped++; continue; }
      uint64_t t2=now(); uint64_t start=o->last>t2?o->last:t2; if(rate>0){ start+= (uint64_t)((len+14)/rate);} o->last=start; pkt*q=&o->q[o->tail%CAP]; q->when=start+delay; q->len=len; q->data=malloc(len); memcpy(q->data,buf,len); o->tail++; if(o->tail-o->head>o->most) o->most=o->tail-o->head; }
  }
}
