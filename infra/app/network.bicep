// The network: a subnet for the app, one for the private endpoints, and the zones that make the
// services' public names resolve to them.
param name string
param location string
param tags object
param withBus bool
@description('Whether the host storage also holds the task hub of Durable Functions.')
param hubInStorage bool

var zones = concat(
  [
    'privatelink.blob.${environment().suffixes.storage}'
    'privatelink.documents.azure.com'
    'privatelink.vaultcore.azure.net'
    'privatelink.eventgrid.azure.net'
    'privatelink.azurewebsites.net'
  ],
  hubInStorage
    ? [
        'privatelink.queue.${environment().suffixes.storage}'
        'privatelink.table.${environment().suffixes.storage}'
      ]
    : [],
  withBus ? ['privatelink.servicebus.windows.net'] : []
)

resource network 'Microsoft.Network/virtualNetworks@2025-01-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: ['10.20.0.0/16']
    }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: '10.20.0.0/24'
          delegations: [
            {
              name: 'functions'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.20.1.0/24'
          privateEndpointNetworkPolicies: 'Disabled'
        }
      }
    ]
  }
}

resource dns 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for zone in zones: {
    name: zone
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (zone, index) in zones: {
    parent: dns[index]
    name: 'to-network'
    location: 'global'
    properties: {
      registrationEnabled: false
      virtualNetwork: {
        id: network.id
      }
    }
  }
]

output appSubnetId string = '${network.id}/subnets/app'
output endpointsSubnetId string = '${network.id}/subnets/endpoints'
