/* port.h - a port of this machine for a process that will listen at it a moment later. */
#ifndef GW_BASE_PORT_H
#define GW_BASE_PORT_H

/* One that is free now, and not one of those that the kernel gives to whoever connects, or listens without naming one:
 * another process could be given it first. Other seeds give other ports. 0: none is free. */
int gw_port_find(unsigned seed);
/* One of low to high that is free now. 0: none is. */
int gw_port_find_in(int low, int high, unsigned seed);

#endif
