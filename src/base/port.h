/* port.h - finds a TCP port of this machine for a process that will listen on it a moment later. */
#ifndef GW_BASE_PORT_H
#define GW_BASE_PORT_H

/* A port that is free now and outside the kernel's ephemeral range: the kernel could give an ephemeral port to
 * another process first. Other seeds give other ports. 0: none is free. */
int gw_port_find(unsigned seed);
/* A port of low..high that is free now. 0: none is. */
int gw_port_find_in(int low, int high, unsigned seed);

#endif
